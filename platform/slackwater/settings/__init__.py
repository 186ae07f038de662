"""Settings: base reads the environment once; embedded, production and test are its differences."""
