"""Old names of settings and checkpoint keys, so that run folders of older versions can be read.

An entry is added here when a learner's setting or checkpoint key is renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.settings import coerce
from streamgauge.versions import warn_deprecated

# Learner -> old name of a setting -> its name now.
SETTINGS: dict[str, dict[str, str]] = {}
# Learner -> settings that it had and that made no difference where they were off.
DROPPED: dict[str, tuple[str, ...]] = {"acm": ("as_published",)}
# Learner -> old key of its state in a checkpoint -> the key now.
STATE: dict[str, dict[str, str]] = {}
# Learner -> key that its state did not always have -> the value it had in effect until then.
ADDED_STATE: dict[str, dict[str, Any]] = {"rwalk": {"ended": False}}


def current_settings(learner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's stored settings under the names that they have now."""
    names, dropped = SETTINGS.get(learner, {}), DROPPED.get(learner, ())
    return {
        names.get(name, name): value
        for name, value in settings.items()
        if name not in dropped or value
    }


def given_settings(learner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A user's settings without those that the learner had once: with a warning where they are off,
    which made no difference, and refused where they are on."""
    given = dict(settings)
    for setting in DROPPED.get(learner, ()):
        name = f"{learner}.{setting}"
        if setting not in given:
            continue
        if coerce(given.pop(setting), bool, name):
            raise StreamgaugeError(
                f"{name}=true was a setting of version 0.1 and is not offered any more: leave it"
                f" out, for what {name}=false was (docs/methods/{learner}.md)."
            )
        warn_deprecated(f"Leave {name}=false out: what it says is always so. The setting", 4)
    return given


def current_state(learner: str, state: Any) -> Any:
    """A learner's stored state under the keys that it has now; of others, as it is."""
    if learner not in STATE and learner not in ADDED_STATE:
        return state
    keys = STATE.get(learner, {})
    renamed = {keys.get(key, key): value for key, value in state.items()}
    return {**ADDED_STATE.get(learner, {}), **renamed}
