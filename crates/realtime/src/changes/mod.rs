//! Database changes: who subscribes to which changes, and who receives them.
//!
//! A folder imports only from those above it:
//!
//! - `reads`: reads of PostgreSQL as the role of a reader (`role_reads`), shared by those who ask
//!   the same; `times` has the time limits, `pauses` the pauses of work that fails
//! - `entries`: `entry` and `filter` parse what a client asks for, `validate` checks it against the
//!   database, as the role of the client, and `column_test` compiles conditions
//! - `slice`: the changes that are worked on at once: `slices` says how many, `slice_keys` has
//!   their primary keys, and `event` the content of their messages
//! - `subscriptions`: `registry` has the subscriptions in memory, each in a `group` of those with
//!   the same content, which share the work and the bytes; `renewal` gives them the readers of new
//!   tokens; `reader_pauses` knows the readers whose policies take too long, and the subscribers
//!   whose filters do, of which `condition_budgets` keeps account
//! - `decision`: `access` asks PostgreSQL which rows and columns a role may read now, `authorise`
//!   has it asked for the readers of changes, `verdict` decides, and `unauthorized` has the error
//!   events; `database_tests` evaluates conditions whose comparison only PostgreSQL knows, for rows
//!   that the reader may see; `registry_pauses` leaves out those who wait in a pause
//! - `delivery`: `deliver` takes committed changes, and sends the messages to each channel in their
//!   order, which `outgoing` collects; `reader_cohorts` says for which readers together, in the
//!   order of `cohort_turns`; `slice_messages` has the messages of these changes, `shared_topics`
//!   those topics whose messages are kept for a later cohort; `rendering` has PostgreSQL render the
//!   values of the project's own types; `preparation` prepares filters again for tables whose
//!   columns have changed
//! - `subscription`: the subscription of a channel, from the join to its end
//!
//! Promises: a channel receives the values of a row only if its role, with its claims, could select
//! a row of that key and those columns at the moment of the delivery. Deleted rows are not there to
//! be asked about: their keys reach every role that may select any column, and where policies exist
//! filters compare nothing else of them. Nothing is sent with an
//! identity after the subscription with that identity was dropped. A condition or a policy that
//! fails affects only the channels it belongs to. PostgreSQL evaluates conditions only for rows
//! that the policies show to the reader, so that neither their errors nor their time tell anything
//! about a hidden row.

mod decision;
mod delivery;
mod entries;
mod reads;
mod slice;
mod subscription;
mod subscriptions;
mod system_message;
#[cfg(test)]
mod tests;

pub(crate) use entries::entry::PreparedEntries;
pub(crate) use subscription::{ChangesSubscription, DatabaseChanges};
