//! Database changes: who subscribes to which changes, and who receives them.
//!
//! - `entry` and `filter` parse what a client asks for, and `validate` checks it against the
//!   database, as the role of the client;
//! - `column_test` compiles conditions; `database_tests` evaluates those whose comparison only
//!   PostgreSQL knows, for rows that the reader may see;
//! - `registry` has the subscriptions in memory, each in a `group` of those with the same content,
//!   which share the work and the bytes;
//! - `renewal` gives subscriptions the readers of new tokens;
//! - `reader_pauses` knows the readers whose policies take too long, and the subscribers whose
//!   filters do, of which `condition_budgets` keeps account; `registry_pauses` leaves them out;
//! - `access` asks PostgreSQL which rows and columns a role may read now, `authorise` has it asked
//!   for the readers of changes, `verdict` decides, and `unauthorized` has the error events;
//! - `rendering` has PostgreSQL render the values of the project's own types;
//! - `preparation` prepares filters again for tables whose columns have changed;
//! - `deliver` takes committed changes, and sends the messages of `event` to each channel in their
//!   order, which `outgoing` collects; `slices` says how many changes it works on at once, and
//!   `reader_cohorts` for which readers together, in the order of `cohort_turns`; `slice_keys` and
//!   `slice_messages` have the keys and messages of these changes, `shared_topics` those topics
//!   whose messages are kept for a later cohort, `times` the time limits.
//!
//! Promises: a channel receives the values of a row only if its role, with its claims, could select
//! a row of that key and those columns at the moment of the delivery. Deleted rows are not there to
//! be asked about: their keys reach every role that may select any column, and where policies exist
//! filters compare nothing else of them. Nothing is sent with an
//! identity after the subscription with that identity was dropped. A condition or a policy that
//! fails affects only the channels it belongs to. PostgreSQL evaluates conditions only for rows
//! that the policies show to the reader, so that neither their errors nor their time tell anything
//! about a hidden row.

mod access;
mod authorise;
mod cohort_turns;
mod column_test;
mod committed_change;
mod condition_budgets;
mod database_tests;
mod deliver;
mod entry;
mod event;
mod filter;
mod group;
mod outgoing;
mod pauses;
mod preparation;
mod prepared_tables;
mod reader_cohorts;
mod reader_pauses;
mod registry;
mod registry_pauses;
mod rendering;
mod renewal;
mod role_reads;
mod shared_rounds;
mod shared_topics;
mod slice_keys;
mod slice_messages;
mod slices;
mod subscription;
mod system_message;
#[cfg(test)]
mod tests;
mod times;
mod unauthorized;
mod validate;
mod verdict;

pub(crate) use entry::PreparedEntries;
pub(crate) use subscription::{ChangesSubscription, DatabaseChanges};
