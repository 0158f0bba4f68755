"""Random SELECTs of MySQL over two tables, of all that is answered and some that is refused."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from random import Random

from ccpr.matrixone.server.prepared import Parameter, Unsigned
from ccpr.matrixone.sql.lexer import complete_tokens

INTS, UINTS = ("id", "a", "b", "id", "a", "b", "ti", "bo"), ("u", "ub")
DECIMALS, DOUBLES = ("d", "e", "d", "e", "w", "v", "z"), ("x", "x", "f")
TEXTS, DATES, MOMENTS = ("s", "k", "s", "k", "en", "em", "se"), ("dt",), ("ts", "tf", "tz")
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
            *(self._plain, self._plain, self._grouped, self._grouped, self._joined, self._nested, self._union),
            *(self._constant, self._windows, self._named_alike),
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
        ]  # by a constant alone, MariaDB gives a group that HAVING excludes
        keys = [one if "t." in one else self._name(INTS) for one in keys]
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
        havings = ("", f" HAVING COUNT(*) > {self.random.randint(0, 3)}", " HAVING AVG(t.d) > 2.3333")
        having = self.random.choice(havings) if keys else ""
        tail = self.random.choice(("", self._tail(len(items))))
        return f"SELECT {', '.join(items)} FROM t{where}{group}{having}{tail}"

    def _joined(self) -> str:
        kind = self.random.choice(("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN", ","))
        self.sources = ("t", "o")
        on = (
            ""
            if kind in ("CROSS JOIN", ",")
            else f" ON {self.random.choice(('t.a = o.a', 't.s = o.s', 't.en = o.em', self.condition(2)))}"
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
            "SELECT t.id FROM t WHERE {x} > (SELECT 0.5 * AVG({y}) FROM o WHERE o.a = t.a)",
            "SELECT t.id FROM t WHERE t.d IN (SELECT {y} FROM o)",
            "SELECT t.id, (SELECT SUM({y}) / COUNT(*) FROM o WHERE o.id < t.id) FROM t",
            "SELECT q.v FROM (SELECT {v} AS v FROM t ORDER BY 1 LIMIT 3) q",
        )
        found = self.random.choice(ways)
        parts = {"i": self.whole(1), "v": self.value(1), "x": self.exact(1), "c": self.condition(2)}
        self.sources = ("o",)
        return found.format(**parts, y=self.exact(1))

    def _windows(self) -> str:
        """In an order of all rows, so that there is one answer."""
        self.sources, r = ("t",), self.random
        partition = r.choice(("", f"PARTITION BY {r.choice((self.whole, self.text, self.date))(1)} "))
        order = f"ORDER BY {r.choice((self.value(1), 't.a DESC', 't.s', 't.en'))}, t.id"
        frames = ("", "", f" ROWS BETWEEN {r.randint(0, 2)} PRECEDING AND {r.randint(0, 2)} FOLLOWING")
        frame = r.choice((*frames, " ROWS UNBOUNDED PRECEDING", " RANGE UNBOUNDED PRECEDING"))
        values = (self.exact, self.exact, self.double, self.text, self.date)
        ranked = f"{r.choice(('ROW_NUMBER', 'RANK', 'DENSE_RANK'))}()"
        other = f"{r.choice(('LAG', 'LEAD'))}({r.choice(values)(1)}{r.choice(('', ', 2'))})"
        edge = f"{r.choice(('FIRST_VALUE', 'LAST_VALUE', 'MIN', 'MAX'))}({r.choice(values)(1)})"
        some = f"{r.choice(('SUM', 'AVG', 'COUNT'))}({self.exact(1)})"
        ways = (
            f"{ranked} OVER ({partition}ORDER BY {r.choice((self.value(1), 't.a', 't.id'))})"
            if "ROW" not in ranked
            else f"{ranked} OVER ({partition}{order})",
            f"{other} OVER ({partition}{order})",
            f"{r.choice((edge, some))} OVER ({partition}{order}{frame})",
            f"{some} OVER ({partition})",
            f"NTILE({r.randint(1, 4)}) OVER ({partition}{order})",
            f"({some} OVER w + 1)",
        )
        items = r.sample(ways, r.randint(1, 3))
        named = f" WINDOW w AS ({partition}{order})" if any(" w " in one for one in items) else ""
        return f"SELECT t.id, {', '.join(items)} FROM t{named}"

    def _union(self) -> str:
        self.sources = ("t",)
        kinds = self.random.choice(((self.whole, self.exact, self.number), (self.text,), (self.date, self.moment)))
        word = self.random.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
        one, other = (self.random.choice(kinds)(2) for _ in range(2))
        return f"SELECT {one} AS v FROM t {word} SELECT {other} FROM t ORDER BY 1"

    def _named_alike(self) -> str:
        """An alias that is a column's name, too."""
        self.sources, name = ("t",), self.random.choice(("a", "s", "d", "dt", "en"))
        value = self.random.choice((self.whole, self.text, self.decimal))(2)
        ways = (
            f"SELECT {value} AS {name}, t.id FROM t ORDER BY {name}{self.random.choice(('', ' DESC'))}, t.id",
            f"SELECT MAX(t.a) AS {name}, t.k FROM t GROUP BY t.k ORDER BY {name}, t.k",
            f"SELECT CONCAT(t.{name}, '') AS {name}, COUNT(*) FROM t GROUP BY {name}",
            f"SELECT UPPER({name}) AS {name}, COUNT(*) FROM t GROUP BY UPPER({name}) ORDER BY UPPER({name}) DESC",
            f"SELECT {value} AS {name}, t.id FROM t ORDER BY CONCAT({name}, ''), t.id",
            f"SELECT t.{name}, COUNT(*), SUM(t.id) FROM t GROUP BY t.{name}, t.k WITH ROLLUP",
            f"SELECT COUNT(*) FROM t NATURAL JOIN (SELECT id, {name} FROM o) q",
            "SELECT t.id FROM t WHERE t.s LIKE t.k OR t.k LIKE CONCAT('%', t.s, '%') OR LOWER(t.s) LIKE LOWER('%A%')",
            f"SELECT t.id, t.s REGEXP '{self.random.choice(_REGEXPS)}' FROM t",
            f"SELECT t.{name}, COUNT(*), MIN(t.em), MAX(t.em) FROM t GROUP BY t.{name} ORDER BY {name}",
            f"SELECT q.n, MIN(q.n) FROM (SELECT t.{name} AS n FROM t) q GROUP BY q.n ORDER BY q.n DESC",
            f"SELECT DISTINCT t.{name} FROM t ORDER BY {name}",
            "SELECT t.id, t.en FROM t JOIN o ON t.en = o.em ORDER BY o.em, t.en DESC, 1, o.id",
            "SELECT MIN(t.en) AS n FROM t GROUP BY t.a ORDER BY n",
            "SELECT t.id FROM t ORDER BY IFNULL(t.en, t.en), t.id",
            "SELECT t.id FROM t ORDER BY GREATEST(t.en, t.em), LAG(t.en) OVER (ORDER BY t.id), t.id",
        )
        return self.random.choice(ways)

    # ---- values

    def value(self, depth: int) -> str:
        ways = (
            self.whole,
            self.whole,
            self.decimal,
            self.double,
            self.rounded,
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
            lambda: f"SIGN({self.number(d)})",
            lambda: f"{r.choice(('GREATEST', 'LEAST'))}({w(d)}, {w(d)})",
            lambda: f"({self.exact(d)} DIV {self.exact(d)})",
            lambda: f"{r.choice(('LOCATE', 'INSTR', 'STRCMP', 'FIELD'))}({self.text(d)}, {self.text(d)})",
            lambda: f"FIELD({self.text(d)}, {self.text(d)}, {self.string()})",
            lambda: f"{r.choice(_DAYS)}({r.choice((self.date, self.moment))(d)})",
            lambda: f"EXTRACT({r.choice(_PARTS[:4])} FROM {r.choice((self.date, self.moment))(d)})",
            lambda: f"MICROSECOND({self.moment(d)})",
            lambda: f"TIMESTAMPDIFF({r.choice(_UNITS)}, {self.date(d)}, {r.choice((self.date, self.moment))(d)})",
            lambda: f"OCTET_LENGTH({self.text(d)})",
            lambda: f"{r.choice(('WEEK', 'YEARWEEK'))}({self.date(d)}, {r.choice((0, 1, 3))})",
            lambda: f"UNIX_TIMESTAMP({self.moment(0)})",
            lambda: f"IFNULL({self._name(UINTS) if self.sources else 'NULL'}, {r.choice(('0', '1'))})",
            lambda: f"CAST({w(d)} AS UNSIGNED)",
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
            lambda: f"TRUNCATE({self.decimal(d)}, {r.randint(0, 2)})",
            lambda: f"{r.choice(('GREATEST', 'LEAST'))}({self.exact(d)}, {self.decimal(d)})",
            lambda: f"({self.decimal(d)} {r.choice(('MOD', '%'))} {self.exact(d)})",
            lambda: f"(({self.quotient(d)}) {r.choice('+-*/')} {self.exact(d)})",
            lambda: f"COALESCE({self.quotient(d)}, {self.exact(d)})",
            lambda: f"{r.choice(('FLOOR', 'CEIL'))}({self.decimal(d)})",
            lambda: f"IFNULL({self.decimal(d)}, {self.exact(d)})",
            lambda: f"IF({self.condition(d)}, {self.decimal(d)}, {self.decimal(d)})",
            lambda: f"CAST({self.exact(d)} AS DECIMAL({r.choice(('12,2', '20,5', '10'))}))",
        )
        return r.choice(ways)()

    def quotient(self, depth: int) -> str:
        return f"{self.random.choice(('', '-'))}{self.number(max(0, depth - 1))} / {self.number(max(0, depth - 1))}"

    def rounded(self, depth: int) -> str:
        return self._one(
            lambda: f"{self.random.choice(('ROUND', 'TRUNCATE'))}({self.double(depth)}, {self.random.randint(0, 4)})",
            lambda: f"{self.random.choice(('ROUND', 'FLOOR', 'CEIL'))}({self.double(depth)})",
        )

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
            lambda: f"SQRT({self.number(d)})",
            lambda: f"CAST({self.exact(d)} AS DOUBLE)",
            lambda: f"({self.double(d)} % {self.number(d)})",
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
            lambda: f"REPLACE({t(d)}, {r.choice((self.string(), t(d)))}, {t(d)})",
            lambda: f"CONCAT_WS({self.string()}, {t(d)}, {r.choice((t, self.whole))(d)}, {t(d)})",
            lambda: f"{r.choice(('LPAD', 'RPAD'))}({t(d)}, {r.randint(0, 5)}, {r.choice(_FILLING)})",
            lambda: f"REPEAT({t(d)}, {r.randint(-1, 3)})",
            lambda: f"SUBSTRING_INDEX({t(d)}, '{r.choice('a.1')}', {r.choice((-2, -1, 1, 2))})",
            lambda: f"MID({t(d)}, {r.randint(1, 3)}, 2)",
            lambda: f"{r.choice(('GREATEST', 'LEAST'))}({t(d)}, {t(d)})",
            lambda: f"{r.choice(('DAYNAME', 'MONTHNAME'))}({r.choice((self.date, self.moment))(d)})",
            lambda: f"IFNULL({t(d)}, {t(d)})",
            lambda: f"NULLIF({t(d)}, {t(d)})",
            lambda: f"IF({self.condition(d)}, {t(d)}, {t(d)})",
            lambda: f"DATE_FORMAT({r.choice((self.date, self.moment))(d)}, '{r.choice(_FORMATS)}')",
            lambda: f"CAST({r.choice((self.whole, t, self.decimal, self.date, self.moment))(d)} AS CHAR)",
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
            lambda: f"LAST_DAY({r.choice((self.date, self.moment))(d)})",
            lambda: f"MAKEDATE(YEAR({self.date(d)}), {r.randint(0, 366)})",
            lambda: f"{r.choice(('ADDDATE', 'SUBDATE'))}({self.date(d)}, {count})",
            lambda: f"TIMESTAMPADD({unit}, {count}, {self.date(d)})",
            lambda: f"STR_TO_DATE(CONCAT(DATE_FORMAT({self.date(d)}, '%Y-%m'), '-{r.randint(1, 28)}'), '%Y-%m-%d')",
            lambda: f"STR_TO_DATE(CONCAT(YEARWEEK({self.date(d)}), ' Sunday'), '%X%V %W')",
            lambda: (
                f"DATE_ADD({self.date(d)}, INTERVAL {r.choice((self._name(('id', 'b')), 't.id'))} DAY)"
                if self.sources
                else self.date(d)
            ),
            lambda: f"{r.choice(('GREATEST', 'LEAST'))}({self.date(d)}, {self.date(d)})",
            lambda: f"IFNULL({self.date(d)}, {self.date(d)})",
        )
        return r.choice(ways)()

    def moment(self, depth: int) -> str:
        if depth <= 0 or not self.sources or self.random.random() < 0.5:
            return self._name(MOMENTS) if self.sources else "CAST(NULL AS DATETIME)"
        if self.random.random() < 0.3:
            return self._one(
                lambda: f"CAST({self.date(depth - 1)} AS DATETIME)",
                lambda: f"TIMESTAMP({self.moment(depth - 1)})",
                lambda: f"FROM_UNIXTIME({self._name(('id', 'a'))})",
                lambda: f"STR_TO_DATE(DATE_FORMAT({self.moment(depth - 1)}, '%Y-%m-%d %H'), '%Y-%m-%d %H')",
            )
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
            lambda: f"({self.condition(d)} {r.choice(('AND', 'OR', '&&', '||', 'XOR'))} {self.condition(d)})",
            lambda: f"(NOT {self.condition(d)})",
            lambda: f"({self.value(d)} IS {r.choice(('', 'NOT '))}NULL)",
            lambda: f"({self.condition(d)} IS {r.choice(('', 'NOT '))}{r.choice(('TRUE', 'FALSE'))})",
            lambda: f"({same(d)} {r.choice(('', 'NOT '))}BETWEEN {same(d)} AND {same(d)})",
            lambda: f"({same(d)} {r.choice(('', 'NOT '))}IN ({same(d)}, {same(d)}, {same(d)}))",
            lambda: f"({self.text(d)} {r.choice(('', 'NOT '))}LIKE {r.choice(_PATTERNS)})",
            lambda: f"({self.date(d)} {sign} '{r.choice(_MOMENTS)}')",
            lambda: f"({self.whole(d)})",
            lambda: f"({self.whole(d)} {sign} '{r.choice((0, 1, -1, 2, 10, 127))}')",
            lambda: f"({self.number(d)} {sign} '{r.choice(('0.5', '-1.25', '2', '0.1', '12345678901.5'))}')",
            lambda: f"({self.number(d)} IN ({r.choice(_LISTS)}))",
            lambda: f"({self.number(d)} BETWEEN '-1' AND '{r.choice(('2', '2.5', 'b'))}')",
            lambda: f"({self.whole(d)} IN ('{r.randint(-4, 10)}', {self.whole(0)}, '{r.randint(0, 3)}'))",
            lambda: f"{same(d)} {sign} {same(d)} {r.choice(('AND', 'OR'))} NOT {same(d)} {sign} {same(d)}",
        )
        return r.choice(ways)()

    def aggregate(self) -> str:
        r = self.random
        distinct = r.choice(("", "", "DISTINCT "))
        ways = (
            lambda: "COUNT(*)",
            lambda: f"COUNT({distinct}{self.value(1)})",
            lambda: f"COUNT(DISTINCT {self.value(1)}, {self.value(1)})",
            lambda: f"SUM({distinct}{self.exact(2)})",
            lambda: f"SUM({self.double(1)})",
            lambda: f"AVG({distinct}{self.exact(1)})",
            lambda: f"AVG({self.double(1)})",
            lambda: f"{r.choice(('MIN', 'MAX'))}({self.value(2)})",
            lambda: f"GROUP_CONCAT({distinct}t.s ORDER BY t.s{r.choice(('', ' DESC'))}{r.choice(_SEPARATORS)})",
            lambda: f"GROUP_CONCAT({distinct}t.en ORDER BY t.en{r.choice(('', ' DESC'))})",
            lambda: f"ROUND(AVG({self.exact(1)}), 2)",
            lambda: f"SUM({self.exact(1)}) / COUNT(*)",
            lambda: f"SUM(CASE WHEN {self.condition(1)} THEN {self.exact(0)} ELSE 0 END)",
            lambda: f"IFNULL(SUM({self.whole(1)}), 0)",
            lambda: f"(MAX({self.whole(1)}) - MIN({self.whole(1)}))",
        )
        return r.choice(ways)()


def parametrised(random: Random, statement: str) -> tuple[str, list[Parameter]]:
    """Some of its literals are parameters: of their own type mostly, else of any."""
    parts, values, end = list[str](), list[Parameter](), 0
    for token in complete_tokens(statement):
        before = statement[end : token.start]
        is_number = token.kind == "number"
        if (
            (not is_number and token.kind != "text")
            or random.random() < 0.4
            or _PLACES.search(statement[: token.start])
        ):
            parts += [before, statement[token.start : token.end]]
        else:
            number = (
                token.value if is_number and "e" not in token.value else random.choice(("2", "-1.50", "10", "0", "7"))
            )
            others = (
                str(number),
                number,
                Decimal(number),
                None if _SUMMED.search(statement) else float(number),
                Unsigned(abs(Decimal(number))),
                None,
            )
            own = _number_of(token.value) if is_number else token.value
            other = random.choice(
                (*others, date(2024, 2, 29), datetime(2021, 6, 1, 12), datetime(2020, 1, 1, 0, 0, 0, 120000))
            )
            values.append(own if random.random() < 0.7 else other)
            parts += [before, "?"]
        end = token.end
    return "".join(parts) + statement[end:], values


_SUMMED = re.compile(r"SUM|AVG")  # of large whole numbers as doubles a sum depends on the order of the rows
_PLACES = re.compile(r"(DATE|(ORDER|GROUP) BY ((?!LIMIT)[^()])*) ?$")  # where it would not be one, or mean another


def _number_of(text: str) -> Parameter:
    return float(text) if "e" in text else Decimal(text) if "." in text else int(text)


_PARTS = ("YEAR", "MONTH", "DAY", "QUARTER", "DAYOFMONTH")
_DAYS = ("DAYOFWEEK", "WEEKDAY", "DAYOFYEAR", "WEEK", "WEEKOFYEAR", "YEARWEEK")
_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_FORMATS = (
    "%Y-%m",
    "%d.%m.%y",
    "%H:%i:%s",
    "%j %%",
    "%Y%m%d",
    "%M",
    "%a %W %b %w",
    "%c/%e %k:%l %p",
    "%r %T",
    "%h %I %f",
    "%U %v %x",
)
_MOMENTS = ("2024-02-29", "2020-01-01", "2021-06-01 12:00:00", "2021-6-1T12:0:0.5", "2024-2-9", "x")
_LISTS = ("2e0, 1.5e0", "'0.1', '2.5'", "'2', NULL, '-1.0'")
_REGEXPS = ("a", "^a", "[0-9]+", ".b|ä", "^[a-zA-Z]{2}$", "(a|b)b?", "[^a-z]", " $", "^$", "\\\\.")
_FILLING = ("'x'", "' '", "'äb'")
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
