"""How a user gets to see what the tasks warn of."""

import warnings

from tasks import errors


def test_warnings_of_the_tasks_are_one_line(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", lambda *args, **kwargs: "usual")
    errors.plain_warnings()
    shown = warnings.formatwarning
    assert shown(UserWarning("edges.tsv: 2 loops"), UserWarning, errors.__file__, 3) == "warning: edges.tsv: 2 loops\n"
    assert shown(UserWarning("other"), UserWarning, "/elsewhere/tasks.py", 3) == "usual"
    assert shown(DeprecationWarning("old"), DeprecationWarning, errors.__file__, 3) == "usual"
