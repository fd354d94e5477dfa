"""Assets, checks, sensors, schedules, alerts."""
