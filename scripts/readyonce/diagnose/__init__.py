"""`readyonce diagnose`: from a log to the error that it shows. Reads compiled rules only."""
