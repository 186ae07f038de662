"""What tests share."""

import sys

# The tools for bills of materials bring a package that jsonschema would load in each process, at 1.7 s of processor
# time, to check a format that nothing here has. A production install is without it.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
