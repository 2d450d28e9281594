"""The mistakes a user can make, told apart from our own."""


class UserError(ValueError):
    """What was asked for cannot be done; the message names the culprit and the remedy in one paragraph."""


def whole(name: str, value: object, least: int) -> int:
    """`value` if it is a whole number of at least `least`.

    Raises UserError, which names the setting, otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, and it is {value!r}.")
    return value


def rate(name: str, value: float) -> float:
    """`value` if it is at least 0 and less than 1, as the probability of a dropout.

    Raises UserError, which names the setting, otherwise.
    """
    if not 0 <= value < 1:
        raise UserError(f"{name} must be at least 0 and less than 1, and it is {value}.")
    return value


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`.

    Raises UserError, which lists the choices, otherwise.
    """
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, and it is {value!r}.")
    return value
