"""How to read the tables of the ledger and its claims: the texts of the page."""

from __future__ import annotations

READING = """## How to read the tables

"ours" is mean ± sample deviation over "seeds" runs, in %; "published" is as printed. "difference"
is ours − published ± half of its 95 % interval by Student's t with "df" degrees of freedom:
Welch's where a mean over seeds and its deviation are published, a prediction interval where one
run is published (that run could be one of ours). "p" is two-sided and of this number alone; "p,
Holm" is corrected over all judged numbers of the published table in the suite. Deviations of few
seeds are uncertain: a variance below the typical one of its column is raised half way to it, and
none is below the binomial variance of the test samples. So an interval is not that of the printed
deviations alone. [suites.md](suites.md#the-criterion) has the formulas, the error rates and what
is assumed; [the methods](methods/er.md) have a page each.

- **differs**: p by Holm is 5 % or less. The rate of one or more false "differs" is at most 5 % per
  table, and at most n × 5 % over n tables ({bound} for the {tables} here).
- **equivalent**: it does not differ, and the 95 % interval lies within ± 1 point (the margin), by
  two one-sided tests at 2.5 % each. For a number of 3 % a point is much: read the interval.
- **consistent**: it does not differ, and the interval is ± 2 points or less. It is not the same as
  equal: any true difference in the interval is possible, so up to 2 points more than is seen.
- **uninformative**: the interval is wider than that, or there is none. A true difference of 2
  points would be found in about half of cases or fewer, even without Holm. It is no statement that
  the numbers agree.
- **not counted**: the code that ran the row behaves differently from today's, or its runs were not
  kept.
- **not run**.
- **as defined** (no verdict): the method as its paper defines it, where the published code, and
  with it the published number, did something else. Its p by Holm is as if it were judged with its
  table; it is in no count, and in the correction of no other number.

Where p is 5 % or less but not by Holm, the verdict says so ("p ≤ 5 % before Holm"). Intervals,
"equivalent" and "consistent" are of one number and not corrected for how many there are. Below
each table is a statement on all of its judged numbers together: χ² of the differences (a sum over
numbers, scaled so that chance gives how many there are; it has no χ² distribution, and p comes from
10,000 random rotations of the runs) and the mean difference. These p-values account for
correlations between numbers (a seed is the same in all rows), and are not corrected for the number
of tables. Rows that were not run are in no statement. The difference that "is called different with
probability 80 %" is by Holm, in the first and strictest of its steps.

The rules for a number, with their limits of 1 and 2 points, replaced "within two published
deviations" when all numbers below were known but those of AGEM with 500 and 8000 samples in memory,
of SCR with 8000, and of RWalk as published (RWalk as defined was known); they have not changed
since. The test of a table as a whole was changed to rotations later, and the bound on variances in
its χ² was added when all numbers below were known.

The survey's seeds 0 to 4 have the same orders of classes as ours, and published values of single
seeds to pair with are not available. Unpaired intervals are then too wide rather than too narrow,
p-values too large, and χ² too small: that it is below the number of cells is no proof of more than
usual agreement. Published deviations are taken as sample deviations (n − 1); had n been meant,
intervals would be wider by 12 % at most. They are printed with one digit, and this rounding is in
no interval. The real-time paper's runs all have one seed: their differences from ours are one
correlated draw, which is why its mean difference has a p-value of its own.

| column | meaning |
|---|---|
{columns}
"""

# What the columns of tables are, where the caption of a table does not say so.
COLUMN_MEANINGS = {
    "Acc": "accuracy on the test set at the end of the stream, mean over tasks (i.i.d.: over all)",
    "AAA": "average anytime accuracy: mean over all mini-batches of the mean accuracy on the tasks "
    "so far, on held-out samples of the stream",
    "WC-Acc": "worst-case accuracy at the end: that of the current task, and the lowest of each "
    "earlier task since it ended, weighted by their number; on held-out samples of the stream",
    "Probed Acc": "accuracy on the test set of a linear classifier on the frozen features of the "
    "end, trained on all training data",
    "CIFAR10, CIFAR100": "average online accuracy: share of right answers given before the label "
    "was known",
    "online": "the same; of the blind classifier, sample by sample",
    "online, by batches": "of the blind classifier: the same, but it learns labels ten at a time",
    "near future": "accuracy at a shift, which the suite gives: so many samples ahead of what is "
    "known",
    "retention": "accuracy of the final model on held-out samples of the whole stream",
    "AA, AF": "average accuracy and average forgetting, mean over tasks, after the last task",
    "RAA, RAF": "the same, rescaled by what a random classifier would have: see [the metrics]"
    "(metrics.md)",
    "AA slope, RAA slope, AF slope, RAF slope": "slope of a line through the values after each "
    "task, points per task",
    "40000, 20000, 10000": "average online accuracy with so many samples in memory",
    "0.001, 0.005, 0.01, 0.05": "the same with this learning rate",
    "1 step, 2 steps": "the same with so many gradient steps per batch",
}


def reading(tables: int) -> str:
    """How to read the tables of the page, of which so many were judged."""
    columns = "\n".join(f"| {name} | {what} |" for name, what in COLUMN_MEANINGS.items())
    return READING.format(tables=tables, bound=f"{5 * tables} %", columns=columns)


CLAIMS = """## Claims

What the papers say, as statements over pairs of rows, tested on our runs seed by seed
(the same seed is the same stream), with the deviations of a claim's pairs raised as above. Where
all seeds have the same stream (near-future-natural), the variance has a second part, that of the
difference between ten consecutive parts of the stream: seeds alone would not say what another
stretch of the stream gives.

"p for": of the claim, which is the largest of its pairs' one-sided p-values; none where rows are
missing or not counted. "p against": that a pair is the other way, by Holm over all its pairs. In
brackets: by Holm over all claims of the paper that are listed here, those that miss rows included.
The last column has the pairs whose own p is above 5 %: mean difference ± half of its two-sided 95 %
interval. p-values are one-sided, so a claim can hold where that interval reaches the limit.

- **holds**, **does not hold**: p by Holm over the paper's claims is 5 % or less. The rate of one or
  more false verdicts of a kind per paper is at most 5 % (by simulation up to 6 %, with three seeds
  and rows of unequal deviation).
- **taken alone**: p is 5 % or less, but not by Holm. Of 20 claims that are false by a hair, one is
  expected to hold in this sense.
- **cannot tell**: neither, or rows are missing or not counted.
- **by construction**: our choice of data or settings makes it so. It is no test, and counts as
  p = 1 in the correction of the others.

"B does not beat A" holds if A − B > −1 point is shown, and does not hold if A − B < 0 is shown; if
both are, it does not hold. "In the paper" is how many pairs of its own numbers are as claimed,
without regard to uncertainty; "on CGLM" and the like: the paper says so of other data than ours.

Listed are sentences of results that say which of two rows is higher, or that they are close: of the
real-time paper's appendix C on CIFAR, of the survey's section 6 and appendix 9.1 on CIFAR100, of
the metric paper's section 5.3 on CIFAR100, and of the near-future paper's section 3 and appendices
A and C. Not listed: correlations and plateaus, which the papers do not define, and what only CLOC,
CGLM or Tiny ImageNet can show, and so all of Cai et al. The list and the margins that a paper does
not give were made when most runs were known (but that of SCR with 8000 samples, before any of its
runs). Ten sentences were added last, to leave out as few as possible; they made the correction of
the others stricter.
"""
