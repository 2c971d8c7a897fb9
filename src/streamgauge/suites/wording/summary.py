"""The first screen of the ledger: of all published numbers, how many are compatible, how many
differ, and of how many nobody knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from streamgauge.suites.claims import ClaimResult
from streamgauge.suites.comparing import (
    NOT_COUNTED,
    NOT_RUN,
    LedgerCell,
    TableStatement,
    fixed,
    p_text,
    statements,
)
from streamgauge.suites.criterion import LEVEL, MARGIN, WIDEST

# Verdicts of claims in the order of the summary, with the words there.
CLAIM_WORDS = {
    "holds": "hold",
    "holds, taken alone": "hold only taken alone (not corrected for the number of claims)",
    "does not hold": "refuted",
    "does not hold, taken alone": "refuted only taken alone",
    "cannot tell": "cannot be decided",
    "by construction": "are true by our own choices (no test)",
}


def summary(cells: Mapping[str, Sequence[LedgerCell]], claims: Iterable[ClaimResult]) -> list[str]:
    """Sentences on the cells of all suites, by suite, and on the claims."""
    numbers = [c for each in cells.values() for c in each if c.published and not c.defined]
    tests = [c for c in numbers if c.test is not None]
    tables = [one for each in cells.values() for one in statements(each)]
    return [
        f"Of {len(numbers)} published numbers, {len(tests)} were run and judged, each by the "
        "interval and the p-value of its difference from ours.",
        _compatible(cells, tests),
        _differs(tests),
        *_as_defined(cells),
        *_power(tables),
        _unknown(cells, numbers),
        _claims(list(claims)),
    ]


def plain(sentence: str) -> str:
    """Without the marks of Markdown.

    >>> plain("**Differs: 0 of 2.** See [the rest](suites.md#left).")
    'Differs: 0 of 2. See the rest.'
    """
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence.replace("**", ""))


def _compatible(cells: Mapping[str, Sequence[LedgerCell]], tests: Sequence[LedgerCell]) -> str:
    equivalent = [c for c in tests if c.verdict == "equivalent"]
    consistent = [c for c in tests if c.verdict == "consistent"]
    farthest = max((abs(c.difference) + c.test.half for c in consistent if c.test), default=0.0)
    return (
        f"**Compatible: {len(equivalent) + len(consistent)} of {len(tests)}.** {len(equivalent)} "
        f"are equivalent (each taken alone shown to be within ± {MARGIN:g} point), "
        f"{len(consistent)} consistent: no difference was found, by an interval of ± {WIDEST:g} "
        f"points or less, and true differences of up to {fixed(farthest, 1)} points are possible. "
        f"By suite: {_by_suite(cells, ('equivalent', 'consistent'))}."
    )


def _differs(tests: Sequence[LedgerCell]) -> str:
    differs = [c for c in tests if c.verdict == "differs"]
    alone = [c for c in tests if c.test and c.test.p <= LEVEL]
    single = [c for c in tests if c.published and (c.published.seeds or 1) == 1]
    parts = [
        (of, f"the {len(of)} numbers with {runs}")
        for of, runs in (
            (single, "one published run"),
            ([c for c in tests if c not in single], "several published runs"),
        )
        if of
    ]
    before = " and ".join(
        f"{sum(c in alone for c in of)} of {name} ({fixed(LEVEL * len(of), 1)} or less by chance)"
        for of, name in parts
    )
    others = [c for c in alone if c not in differs]
    return (
        f"**Differs: {len(differs)} of {len(tests)}**{_named(differs)}, by p of 5 % or less, "
        f"corrected by Holm within a table. Before this correction {before} have it"
        f"{_named(others, 'also ')}. Few differences alone are no evidence of agreement."
    )


def _as_defined(cells: Mapping[str, Sequence[LedgerCell]]) -> list[str]:
    defined = [c for each in cells.values() for c in each if c.defined and c.test]
    if not defined:
        return []
    off = [c for c in defined if c.test and c.test.adjusted <= LEVEL]
    return [
        f'**Not judged: {len(defined)} numbers of rows "as defined"**, since the published ones '
        f"are of a code that does something else. Judged with their tables, {len(off)} would "
        f"differ{_named(off)}."
    ]


def _power(tables: Sequence[TableStatement]) -> list[str]:
    joint = [p for one in tables for p in (one.joint.p, one.joint.offset_p) if p == p]
    free = [p for one in tables for p in (one.joint.free, one.joint.offset_p) if p == p]
    power = [points for one in tables for points in one.detectable]
    if not joint:
        return []
    return [
        f"**What could have been found:** a number is called different with probability 80 % where "
        f"it is off by {fixed(median(power), 1)} points (median; {fixed(min(power), 1)} to "
        f"{fixed(max(power), 1)}), if the deviations are as estimated. {len(tables)} tables were "
        f"also tested as a whole, by χ² and by the mean difference: "
        f"{sum(p <= LEVEL for p in joint)} of {len(joint)} p-values are 5 % or less, the least is "
        f"{p_text(min(joint))}; without the bound on variances in χ², which was added after the "
        f"results were seen, {sum(p <= LEVEL for p in free)}, and {p_text(min(free))}."
    ]


def _unknown(cells: Mapping[str, Sequence[LedgerCell]], numbers: Sequence[LedgerCell]) -> str:
    count = Counter(c.verdict for c in numbers)
    wide, rest = count["uninformative"], count[NOT_RUN] + count[NOT_COUNTED]
    text = (
        f"**Not known: {wide + rest} of {len(numbers)}.** {wide} were run and are uninformative: "
        f"runs vary too much for an interval of ± {WIDEST:g} points "
        f"({_by_suite(cells, ('uninformative',))}). "
    )
    if count[NOT_COUNTED]:
        text += f"{count[NOT_COUNTED]} were run by code that behaves differently today. "
    return text + (
        f"{count[NOT_RUN]} were not run ({_by_suite(cells, (NOT_RUN,), of_run=False)}): "
        "[what is left](suites.md#what-is-left-to-run), in GPU minutes."
    )


def _claims(results: Sequence[ClaimResult]) -> str:
    count = Counter(result.verdict for result in results)
    told = ", ".join(f"{count[v]} {words}" for v, words in CLAIM_WORDS.items() if count[v])
    return f"**Claims: {len(results)}** statements that the papers make; {told}."


def _by_suite(
    cells: Mapping[str, Sequence[LedgerCell]], verdicts: Iterable[str], of_run: bool = True
) -> str:
    """How many cells of each suite have one of these verdicts, and of how many that were run."""
    chosen, texts = set(verdicts), []
    for name, each in cells.items():
        numbers = [c for c in each if c.published and not c.defined]
        run = sum(c.test is not None for c in numbers)
        count = sum(c.verdict in chosen for c in numbers)
        if of_run and run:
            texts.append(f"{name} {count} of {run}")
        elif not of_run and count:
            texts.append(f"{name} {count}")
    return ", ".join(texts)


def _named(cells: Sequence[LedgerCell], first: str = "") -> str:
    texts = [
        f"{c.title} on {c.column} {fixed(c.difference, sign='+')} ± {fixed(c.test.half)}"
        for c in cells
        if c.test
    ]
    return f" ({first}{'; '.join(texts)})" if texts else ""
