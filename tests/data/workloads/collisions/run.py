"""A user's module that is called like one of the probe's."""

NAME = "the user's run"
