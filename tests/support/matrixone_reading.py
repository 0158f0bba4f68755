"""What MatrixOne's scanner makes of a text, byte by byte and with its oddities, to judge what stands in a script. Only
as much as decides where a statement ends. Docs: docs/upstream.md, "What its scanner reads otherwise"."""

from ccpr.matrixone.definitions import Mode

_SPACE = b" \n\r\t"
_BLANK = frozenset(_SPACE)
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_DIGITS = frozenset(b"0123456789")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_SIGNS = frozenset(b"=,()+*%^~{}&|?.-<>!")
_END = -1


class NotRead(Exception):
    """The scanner has an error: nothing of the text is run."""


def statements(text: str, mode: Mode = (True, True)) -> list[bytes]:
    """The statements of a text, without what is blank or comment in them. Raises NotRead."""
    return _Reading(text.encode("utf-8", "surrogatepass"), mode).statements()


class _Reading:
    def __init__(self, content: bytes, mode: Mode) -> None:
        self.content, self.at, self.single, self.double, self.executable = content, 0, *mode, False

    def statements(self) -> list[bytes]:
        found = [b""]
        while self.now() != _END:
            start = self.at
            meaning = self.token()
            if meaning == "end":
                found.append(b"")
            elif meaning == "token":
                found[-1] += self.content[start : self.at].strip(_SPACE) + b" "
        if self.executable:
            raise NotRead
        return [one.strip() for one in found if one.strip()]

    def now(self, ahead: int = 0) -> int:
        return self.content[self.at + ahead] if self.at + ahead < len(self.content) else _END

    def token(self) -> str:
        """Read one: `token`, `end` of a statement, or `space`."""
        one = self.now()
        if one in _BLANK:
            self.at += 1
            return "space"
        following = bytes(self.content[self.at : self.at + 2])
        if one == ord("@"):
            self.variable()
        elif one in frozenset(b"xXbB") and following[1:] == b"'":
            self.literal(_HEX if one in frozenset(b"xX") else frozenset(b"01"), even=one in frozenset(b"xX"))
        elif one == ord("$"):
            self.dollars()
        elif self.content[self.at :].startswith(b"_utf8mb4"):
            self.collated()
        elif one in _LETTERS:
            self.identifier()
        elif one in _DIGITS or (one == ord(".") and self.now(1) in _DIGITS):
            self.number()
        elif one == ord(":"):
            if following not in (b":=", b"::"):
                raise NotRead  # or a bind variable, which no statement of a script has
            self.at += 2
        elif one == ord(";"):
            self.at += 1
            return "end"
        elif one == ord("#") or following == b"//":
            return self.line()
        elif following == b"/*":
            return self.block()
        elif following == b"--" and (self.now(2) == _END or self.now(2) in _BLANK):
            return self.line()
        elif one == ord("*") and self.executable and following == b"*/":
            self.at, self.executable = self.at + 2, False
            return "space"
        elif one in frozenset(b"'\""):
            if self.executable and one == ord("'"):
                raise NotRead  # it depends on what follows whether it is a quote
            self.string(one)
        elif one == ord("`"):
            self.name()
        elif one in _SIGNS or one == ord("/"):
            self.at += 1
        else:
            raise NotRead
        return "token"

    def line(self) -> str:
        while self.now() not in (_END, ord("\n")):
            self.at += 1
        return "space"

    def block(self) -> str:
        self.at += 2
        if self.now() == ord("!"):
            self.at, self.executable = self.at + 1, True
            digits = self.content[self.at : self.at + 5]
            if self.now() in _DIGITS:
                if len(digits) < 5 or not digits.isdigit():
                    raise NotRead
                self.at += 5
            return "space"
        end = self.content.find(b"*/", self.at)
        if end < 0:
            raise NotRead
        self.at = end + 2
        return "space"

    def string(self, quote: int) -> None:
        escapes = self.single if quote == ord("'") else self.double
        self.at += 1
        while (one := self.now()) != _END:
            self.at += 1
            if one == ord("\\") and escapes:
                if self.now() == _END:
                    break
                self.at += 1
            elif one == quote:
                if self.now() != quote:
                    return
                self.at += 1
        raise NotRead

    def name(self) -> None:
        self.at += 1
        start = self.at
        while (one := self.now()) != _END:
            self.at += 1
            if one == ord("`"):
                if self.now() != ord("`"):
                    if self.at == start + 1:
                        break
                    return
                self.at += 1
        raise NotRead

    def identifier(self, more: frozenset[int] = frozenset()) -> None:
        """Its first byte is taken whatever it is."""
        dollar = self.now() == ord("$")
        self.at = min(self.at + 1, len(self.content))
        while self.now() in _LETTERS | _DIGITS | more and not (dollar and self.now() == ord("$")):
            self.at += 1

    def variable(self) -> None:
        self.at += 1
        while self.now() in _BLANK:
            self.at += 1
        if self.now() == ord("@"):
            self.at += 1
        elif self.now() in frozenset(b"'\","):
            return
        if self.now() == _END:
            raise NotRead
        if self.now() == ord("`"):
            self.name()
        else:
            self.identifier(frozenset(b".\"`'"))

    def literal(self, digits: frozenset[int], *, even: bool) -> None:
        self.at += 2
        start = self.at
        while self.now() in digits:
            self.at += 1
        if self.now() != ord("'") or (even and (self.at - start) % 2):
            raise NotRead
        self.at += 1

    def dollars(self) -> None:
        start = self.at
        self.identifier()
        if self.now() != ord("$"):
            return
        tag = self.content[start : self.at]
        end = self.content.find(b"$", self.at + 1)
        if end < 0:
            raise NotRead
        self.at = end
        start = self.at
        self.identifier()
        if self.content[start : self.at] != tag:
            raise NotRead
        self.at = min(self.at + 1, len(self.content))

    def collated(self) -> None:
        self.at += 8
        while self.now() in _BLANK:
            self.at += 1
        if self.now() == ord("'"):
            self.string(ord("'"))
        else:
            self.identifier()
            self.identifier()

    def number(self) -> None:
        if self.now() == ord("0") and self.now(1) in frozenset(b"xXbB"):
            digits = _HEX if self.now(1) in frozenset(b"xX") else frozenset(b"01")
            self.at += 2
            if self.now() not in digits:
                self.identifier()
                return
            while self.now() in digits:
                self.at += 1
        else:
            while self.now() in _DIGITS or self.now() == ord("."):
                self.at += 1
            if self.now() in frozenset(b"eE") and self.now(1) in frozenset(b"+-"):
                self.at += 2
        if self.now() in _LETTERS:
            self.identifier()
