"""Moments as they are written in logs, so that one can be found by the other."""

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s T"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "Y-m-d H:i:s T"
MONTH_DAY_FORMAT = "m-d"
YEAR_MONTH_FORMAT = "Y-m"
