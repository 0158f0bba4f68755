"""Random SELECTs of MySQL over two tables, of all that is answered and some that is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

INTS, UINTS, DECIMALS, DOUBLES = ("id", "a", "b"), ("u",), ("d", "e"), ("x",)
TEXTS, DATES, MOMENTS = ("s", "k"), ("dt",), ("ts", "tf")
STRINGS = (
    "",
    "a",
    "A",
    "b",
    "ab",
    "a ",
    " a",
    "ä",
    "Ä",
    "😀",
    "a%",
    "a_b",
    "a\\b",
    "x'y",
    '"',
    "10",
    "1.5",
    "äöü-lang",
)


@dataclass
class Statements:
    """`statement` makes one; each has as many parts in one another as `depth`."""

    random: Random
    depth: int = 3

    def statement(self) -> str:
        return self._one(
            self._plain, self._plain, self._grouped, self._joined, self._nested, self._union, self._constant
        )

    def _one(self, *ways: Callable[[], str]) -> str:
        return self.random.choice(ways)()

    def _name(self, names: tuple[str, ...]) -> str:
        return f"{self.random.choice(self.sources)}.{self.random.choice(names)}"

    sources: tuple[str, ...] = ("t",)

    # ---- queries

    def _tail(self, count: int) -> str:
        places = list(range(1, count + 1))
        self.random.shuffle(places)
        order = ", ".join(f"{place}{self.random.choice(('', ' ASC', ' DESC'))}" for place in places)
        limit = self.random.choice(("", "", f" LIMIT {self.random.randint(0, 9)}", " LIMIT 2, 3", " LIMIT 4 OFFSET 1"))
        return f" ORDER BY {order}{limit}"

    def _plain(self) -> str:
        self.sources = ("t",)
        items = [self.value(self.depth) for _ in range(self.random.randint(1, 3))]
        distinct = self.random.choice(("", "", "DISTINCT "))
        where = self.random.choice(("", f" WHERE {self.condition(self.depth)}"))
        tail = self.random.choice(("", self._tail(len(items))))
        if distinct:  # MariaDB 11 does not count an OFFSET where all values are constants
            tail = tail.partition(" LIMIT")[0]
        return f"SELECT {distinct}{', '.join(items)} FROM t{where}{tail}"

    def _constant(self) -> str:
        self.sources = ()
        return f"SELECT {self.value(self.depth)}"

    def _grouped(self) -> str:
        self.sources = ("t",)
        keys = [
            self.random.choice((self.whole, self.text, self.date, self.decimal))(1)
            for _ in range(self.random.randint(0, 2))
        ]
        aggregates = [self.aggregate() for _ in range(self.random.randint(1, 3))]
        if any("GROUP_CONCAT" in one for one in aggregates):  # MariaDB 11 loses the NULL of an expression then
            keys = [self._name((*INTS, *TEXTS, *DATES)) for _ in keys]
        items = [*keys, *aggregates]
        where = self.random.choice(("", f" WHERE {self.condition(2)}"))
        group = (
            f" GROUP BY {', '.join(self.random.choice((key, str(place))) for place, key in enumerate(keys, 1))}"
            if keys
            else ""
        )
        having = self.random.choice(("", f" HAVING COUNT(*) > {self.random.randint(0, 3)}")) if keys else ""
        tail = self.random.choice(("", self._tail(len(items))))
        return f"SELECT {', '.join(items)} FROM t{where}{group}{having}{tail}"

    def _joined(self) -> str:
        kind = self.random.choice(("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN", ","))
        self.sources = ("t", "o")
        on = (
            ""
            if kind in ("CROSS JOIN", ",")
            else f" ON {self.random.choice(('t.a = o.a', 't.s = o.s', self.condition(2)))}"
        )
        items = [self.value(2) for _ in range(self.random.randint(1, 3))]
        where = self.random.choice(("", f" WHERE {self.condition(2)}"))
        return f"SELECT {', '.join(items)} FROM t {kind} o{on}{where}"

    def _nested(self) -> str:
        self.sources = ("t",)
        ways = (
            "SELECT q.n, COUNT(*) FROM (SELECT {i} AS n, {v} AS v FROM t) AS q GROUP BY q.n",
            "WITH q AS (SELECT {i} AS n, {x} AS v FROM t WHERE {c}) SELECT n, v FROM q WHERE n > 1",
            "SELECT t.id FROM t WHERE t.a IN (SELECT o.a FROM o WHERE o.b > 0)",
            "SELECT t.id FROM t WHERE t.a NOT IN (SELECT o.a FROM o)",
            "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM o WHERE o.a = t.a AND {c})",
            "SELECT t.id, (SELECT MAX(o.d) FROM o WHERE o.a = t.a) FROM t WHERE {c}",
            "SELECT t.id FROM t WHERE t.d > (SELECT AVG(o.d) FROM o)",
            "SELECT q.v FROM (SELECT {v} AS v FROM t ORDER BY 1 LIMIT 3) q",
        )
        found = self.random.choice(ways)
        return found.format(i=self.whole(1), v=self.value(1), x=self.exact(1), c=self.condition(2))

    def _union(self) -> str:
        self.sources = ("t",)
        kind = self.random.choice((self.whole, self.text, self.date))
        all_ = self.random.choice(("", " ALL"))
        return f"SELECT {kind(2)} AS v FROM t UNION{all_} SELECT {kind(2)} FROM t ORDER BY 1"

    # ---- values

    def value(self, depth: int) -> str:
        ways = (
            self.whole,
            self.whole,
            self.decimal,
            self.double,
            self.text,
            self.text,
            self.date,
            self.moment,
            self.condition,
            self.quotient,
            self.odd,
        )
        return self.random.choice(ways)(depth)

    def exact(self, depth: int) -> str:
        return self.random.choice((self.whole, self.decimal))(depth)

    def number(self, depth: int) -> str:
        return self.random.choice((self.whole, self.decimal, self.double))(depth)

    def odd(self, depth: int) -> str:
        """What MySQL would convert, mostly."""
        mixed = (self.whole, self.text, self.date, self.decimal, self.double)
        a, b = (self.random.choice(mixed)(max(0, depth - 1)) for _ in range(2))
        return self.random.choice(
            (
                f"({a} = {b})",
                f"IFNULL({a}, {b})",
                f"({a} + {b})",
                f"CONCAT({a}, {b})",
                f"IF({a}, {b}, {a})",
                f"NULLIF({a}, {b})",
                f"COALESCE({a}, {b})",
            )
        )

    def whole(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.25:
            literal = self.random.choice(
                ("0", "1", "-1", "2", "7", "-3", "10", "NULL", "2147483647", "9223372036854775807")
            )
            return (
                self._name((*INTS, *UINTS) if self.random.random() < 0.2 else INTS)
                if self.sources and self.random.random() < 0.7
                else literal
            )
        d, w, r = depth - 1, self.whole, self.random
        ways = (
            lambda: f"({w(d)} {r.choice('+-*')} {w(d)})",
            lambda: f"({w(d)} {r.choice(('DIV', 'MOD', '%'))} {w(d)})",
            lambda: f"(-{w(d)})",
            lambda: f"ABS({w(d)})",
            lambda: f"IF({self.condition(d)}, {w(d)}, {w(d)})",
            lambda: f"IFNULL({w(d)}, {w(d)})",
            lambda: f"COALESCE({w(d)}, {w(d)}, {w(d)})",
            lambda: f"NULLIF({w(d)}, {w(d)})",
            lambda: f"CASE WHEN {self.condition(d)} THEN {w(d)} WHEN {self.condition(d)} THEN {w(d)} ELSE {w(d)} END",
            lambda: f"CASE {w(d)} WHEN {w(d)} THEN {w(d)} END",
            lambda: f"{r.choice(('LENGTH', 'CHAR_LENGTH'))}({self.text(d)})",
            lambda: f"{r.choice(_PARTS)}({r.choice((self.date, self.moment))(d)})",
            lambda: f"{r.choice(('HOUR', 'MINUTE', 'SECOND'))}({self.moment(d)})",
            lambda: f"DATEDIFF({self.date(d)}, {r.choice((self.date, self.moment))(d)})",
            lambda: f"CAST({r.choice((w, self.decimal))(d)} AS SIGNED)",
            lambda: f"{r.choice(('ROUND', 'FLOOR', 'CEIL'))}({w(d)})",
        )
        return r.choice(ways)()

    def decimal(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            literal = self.random.choice(("0.0", "1.5", "-2.25", "0.005", "100.00", "3.14159", "12345.678"))
            return self._name(DECIMALS) if self.sources and self.random.random() < 0.7 else literal
        d, r = depth - 1, self.random
        ways = (
            lambda: f"({self.decimal(d)} {r.choice('+-*')} {self.exact(d)})",
            lambda: f"({self.whole(d)} {r.choice('+-*')} {self.decimal(d)})",
            lambda: f"(-{self.decimal(d)})",
            lambda: f"ABS({self.decimal(d)})",
            lambda: f"ROUND({r.choice((self.decimal, self.quotient))(d)}, {r.randint(0, 3)})",
            lambda: f"ROUND({self.decimal(d)})",
            lambda: f"{r.choice(('FLOOR', 'CEIL'))}({self.decimal(d)})",
            lambda: f"IFNULL({self.decimal(d)}, {self.exact(d)})",
            lambda: f"IF({self.condition(d)}, {self.decimal(d)}, {self.decimal(d)})",
            lambda: f"CAST({self.exact(d)} AS DECIMAL({r.choice(('12,2', '20,5', '10'))}))",
        )
        return r.choice(ways)()

    def quotient(self, depth: int) -> str:
        return f"{self.random.choice(('', '-'))}{self.number(max(0, depth - 1))} / {self.number(max(0, depth - 1))}"

    def double(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.4:
            return (
                self._name(DOUBLES)
                if self.sources and self.random.random() < 0.8
                else self.random.choice(("1e0", "2.5e0", "-1e3"))
            )
        d, r = depth - 1, self.random
        ways = (
            lambda: f"({self.double(d)} {r.choice('+-*/')} {self.number(d)})",
            lambda: f"(-{self.double(d)})",
            lambda: f"ABS({self.double(d)})",
            lambda: f"IFNULL({self.double(d)}, {self.number(d)})",
        )
        return r.choice(ways)()

    def string(self) -> str:
        return "'" + self.random.choice(STRINGS).replace("\\", "\\\\").replace("'", "''") + "'"

    def text(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self._name(TEXTS) if self.sources and self.random.random() < 0.75 else self.string()
        d, r, t = depth - 1, self.random, self.text
        ways = (
            lambda: f"CONCAT({t(d)}, {r.choice((t, t, self.whole, self.date, self.decimal))(d)})",
            lambda: f"{r.choice(('LOWER', 'UPPER'))}({t(d)})",
            lambda: f"{r.choice(('TRIM', 'LTRIM', 'RTRIM'))}({t(d)})",
            lambda: f"{r.choice(('LEFT', 'RIGHT'))}({t(d)}, {r.randint(0, 4)})",
            lambda: f"SUBSTRING({t(d)}, {r.randint(-4, 4)}{r.choice(('', f', {r.randint(-1, 4)}'))})",
            lambda: f"REPLACE({t(d)}, {self.string()}, {t(d)})",
            lambda: f"IFNULL({t(d)}, {t(d)})",
            lambda: f"NULLIF({t(d)}, {t(d)})",
            lambda: f"IF({self.condition(d)}, {t(d)}, {t(d)})",
            lambda: f"DATE_FORMAT({r.choice((self.date, self.moment))(d)}, '{r.choice(_FORMATS)}')",
            lambda: f"CAST({r.choice((self.whole, t, self.decimal, self.date))(d)} AS CHAR)",
        )
        return r.choice(ways)()

    def date(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.4:
            return (
                self._name(DATES)
                if self.sources and self.random.random() < 0.8
                else self.random.choice(("DATE '2024-02-29'", "DATE '1999-12-31'", "DATE('2020-05-05')"))
            )
        d, r = depth - 1, self.random
        count, unit = r.randint(-40, 40), r.choice(("DAY", "WEEK", "MONTH", "YEAR", "QUARTER"))
        ways = (
            lambda: f"DATE_{r.choice(('ADD', 'SUB'))}({self.date(d)}, INTERVAL {count} {unit})",
            lambda: f"({self.date(d)} {r.choice('+-')} INTERVAL {count} {unit})",
            lambda: f"DATE({self.moment(d)})",
            lambda: f"IFNULL({self.date(d)}, {self.date(d)})",
        )
        return r.choice(ways)()

    def moment(self, depth: int) -> str:
        if depth <= 0 or not self.sources or self.random.random() < 0.5:
            return self._name(MOMENTS) if self.sources else "CAST(NULL AS DATETIME)"
        count, unit = self.random.randint(-90, 90), self.random.choice(("DAY", "HOUR", "MINUTE", "SECOND", "MONTH"))
        return f"DATE_ADD({self.moment(depth - 1)}, INTERVAL {count} {unit})"

    # ---- conditions

    def condition(self, depth: int) -> str:
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice((f"{self.whole(0)} > {self.whole(0)}", f"{self.text(0)} = {self.text(0)}", "TRUE"))
        sign = r.choice(("=", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
        same = r.choice((self.number, self.whole, self.text, self.date, self.moment))
        ways = (
            lambda: f"({same(d)} {sign} {same(d)})",
            lambda: f"({same(d)} {sign} {same(d)})",
            lambda: f"({self.condition(d)} {r.choice(('AND', 'OR', '&&', '||'))} {self.condition(d)})",
            lambda: f"(NOT {self.condition(d)})",
            lambda: f"({self.value(d)} IS {r.choice(('', 'NOT '))}NULL)",
            lambda: f"({self.condition(d)} IS {r.choice(('', 'NOT '))}{r.choice(('TRUE', 'FALSE'))})",
            lambda: f"({same(d)} {r.choice(('', 'NOT '))}BETWEEN {same(d)} AND {same(d)})",
            lambda: f"({same(d)} {r.choice(('', 'NOT '))}IN ({same(d)}, {same(d)}, {same(d)}))",
            lambda: f"({self.text(d)} {r.choice(('', 'NOT '))}LIKE {r.choice(_PATTERNS)})",
            lambda: f"({self.date(d)} {sign} '{r.choice(('2024-02-29', '2020-01-01', '2021-06-01 12:00:00', 'x'))}')",
            lambda: f"({self.whole(d)})",
            lambda: f"{same(d)} {sign} {same(d)} {r.choice(('AND', 'OR'))} NOT {same(d)} {sign} {same(d)}",
        )
        return r.choice(ways)()

    def aggregate(self) -> str:
        r = self.random
        distinct = r.choice(("", "", "DISTINCT "))
        ways = (
            lambda: "COUNT(*)",
            lambda: f"COUNT({distinct}{self.value(1)})",
            lambda: f"SUM({distinct}{self.exact(2)})",
            lambda: f"SUM({self.double(1)})",
            lambda: f"AVG({distinct}{self.exact(1)})",
            lambda: f"AVG({self.double(1)})",
            lambda: f"{r.choice(('MIN', 'MAX'))}({self.value(2)})",
            lambda: f"GROUP_CONCAT({distinct}t.s ORDER BY t.s{r.choice(('', ' DESC'))}{r.choice(_SEPARATORS)})",
            lambda: f"ROUND(AVG({self.exact(1)}), 2)",
            lambda: f"SUM({self.exact(1)}) / COUNT(*)",
            lambda: f"SUM(CASE WHEN {self.condition(1)} THEN {self.exact(0)} ELSE 0 END)",
            lambda: f"IFNULL(SUM({self.whole(1)}), 0)",
            lambda: f"(MAX({self.whole(1)}) - MIN({self.whole(1)}))",
        )
        return r.choice(ways)()


_PARTS = ("YEAR", "MONTH", "DAY", "QUARTER", "DAYOFMONTH")
_FORMATS = ("%Y-%m", "%d.%m.%y", "%H:%i:%s", "%j %%", "%Y%m%d", "%M")
_SEPARATORS = ("", " SEPARATOR '; '")
_PATTERNS = (
    "'a%'",
    "'%b'",
    "'_'",
    "'%a_b%'",
    "'a\\\\_b'",
    "'%\\\\%%'",
    "''",
    "'%'",
    "'ä%'",
    "'a|%' ESCAPE '|'",
    "'A%'",
    "'a\\\\\\\\b'",
)
