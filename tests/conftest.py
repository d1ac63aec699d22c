"""Whatever a test imports first, MuJoCo is told how to render before it is imported."""

import efmdp  # noqa: F401
