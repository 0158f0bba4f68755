from ccpr.base.wording import first_names


def test_of_a_long_list_the_first_names_are_said_and_how_many_there_are_besides() -> None:
    assert first_names([]) == ""
    assert first_names(["a", "b"], most=2) == "a, b"
    assert first_names((f"t{number}" for number in range(2000)), most=2) == "t0, t1 and 1,998 more"
