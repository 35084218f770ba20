//! Schedules for the classic leaks.
