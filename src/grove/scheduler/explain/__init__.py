"""Why a gang waits, with numbers, and the smallest changes that would help."""
