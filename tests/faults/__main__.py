"""Run all episodes of the grid and all special ones, and write README.md.

python -m tests.faults [--only WORDS] [--cover N] [--lanes N] [--anew]
                       [--skip-special] [--skip-grid]

Ctrl-C ends it; the next run goes on where it was, with what was not good first of all. Outcomes are
kept in build/faults.jsonl.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tqdm import tqdm

from tests.faults import surroundings, table
from tests.faults.covering import covering
from tests.faults.episode import Episode, Outcome, all_episodes
from tests.faults.lanes import by_start_method, run_all
from tests.faults.special import SPECIALS, Told

OUTCOMES = Path("build/faults.jsonl")
TOLD = Path("build/faults_special.json")


def main() -> int:
    """Returns the exit code: 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="words that an episode's name has, all of them")
    parser.add_argument("--cover", type=int, default=0, help="some, with every N circumstances")
    parser.add_argument("--lanes", type=int, default=2, help="processes for each start method")
    parser.add_argument("--anew", action="store_true", help="forget what has been run")
    parser.add_argument("--skip-special", action="store_true", help="the grid alone")
    parser.add_argument("--skip-grid", action="store_true", help="the special episodes alone")
    args = parser.parse_args()
    if args.anew:
        OUTCOMES.unlink(missing_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    surroundings.LOADERS = 200
    outcomes = table.load(OUTCOMES)
    told = Told.load(TOLD)
    try:
        if not args.skip_grid:
            _run_grid(outcomes, args.only.split(), args.cover, args.lanes)
        if not args.skip_special:
            _run_specials(told, args.only.split())
    except KeyboardInterrupt:
        print("cancelled; what has been run is kept", file=sys.stderr)
    table.write(outcomes, told)
    bad = sum(bool(o.verdict) for o in outcomes.values()) + sum(
        bool(t.wrong) for t in told.values()
    )
    print(f"{len(outcomes)} episodes, {bad} not as they must be; see {table.HERE / 'README.md'}")
    return int(bad > 0)


def _run_grid(outcomes: dict[Episode, Outcome], words: list[str], cover: int, lanes: int) -> None:
    """A covering selection first: whoever cancels has seen every pair."""
    wanted = [e for e in all_episodes() if all(word in str(e) for word in words)]
    ordered = covering(wanted, cover) if cover else dict.fromkeys([*covering(wanted), *wanted])
    good = {episode for episode, outcome in outcomes.items() if not outcome.verdict}
    left = [episode for episode in ordered if episode not in good]
    with tqdm(total=len(left), unit="episode", smoothing=0.05) as bar:
        for episode, outcome in run_all(by_start_method(left, lanes)):
            outcomes[episode] = outcome
            table.append(OUTCOMES, episode, outcome)
            bar.update()
            if outcome.verdict:
                bar.write(f"{episode}: {'; '.join(outcome.verdict)}")


def _run_specials(told: dict[str, Told], words: list[str]) -> None:
    for special in tqdm([s for s in SPECIALS if s.run is not None], unit="special"):
        if all(word in special.name for word in words):
            told[special.name] = special.tell()
            Told.save(TOLD, told)


if __name__ == "__main__":
    sys.exit(main())
