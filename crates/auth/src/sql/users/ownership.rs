//! The statements that find the owner of an email address.

use tokio_postgres::Error;

use super::lookup::one;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::{User, user_columns};
use crate::sql::Tx;

statements! {
    /// The account that has an address in the default linking domain: as its own, or by an identity
    /// whose provider vouches for it. An identity that merely claims the address does not count.
    /// `$3`: providers of other domains.
    const LOCK_OWNER_OF_EMAIL = concat!(
        "select ",
        user_columns!(),
        " from auth.users
         where users.aud = $2
           and not users.is_sso_user
           and ($4::uuid is null or users.id <> $4)
           and users.id in (select identities.user_id
                              from auth.identities
                             where identities.email = $1
                               and (identities.identity_data ->> 'email_verified') = 'true'
                               and identities.provider <> 'phone'
                               and identities.provider not like 'sso:%'
                               and identities.provider <> all ($3)
                            union all
                            select owners.id
                              from auth.users as owners
                             where owners.instance_id = '00000000-0000-0000-0000-000000000000'
                               and lower(owners.email) = $1)
         order by users.email = $1 desc nulls last
         limit 1
         for no key update"
    );
    /// The accounts that proved one of the addresses in the linking domain. An identity that merely
    /// claims an address counts only if the address is also the account's own: such an account is
    /// unconfirmed, and the person who proves the address takes it over completely. An account that
    /// proved a number is not taken over. The identity of a number proves no address, whatever its
    /// data contains.
    const OWNERS_BY_IDENTITY = "
        select distinct identities.user_id
          from auth.identities
          join auth.users on users.id = identities.user_id
         where identities.email = any ($1)
           and identities.provider <> 'phone'
           and users.aud = $2
           and case when $3::text[] is not null
                    then identities.provider = any ($3)
                    else identities.provider not like 'sso:%' and identities.provider <> all ($4)
               end
           and ((identities.identity_data ->> 'email_verified') = 'true' or lower(users.email) = identities.email)
           and (users.email_confirmed_at is not null or users.phone_confirmed_at is null)
         limit 2";
    const OWNERS_BY_ADDRESS = "
        select users.id
          from auth.users
         where users.instance_id = '00000000-0000-0000-0000-000000000000'
           and lower(users.email) = any ($1)
           and users.aud = $2
           and not users.is_sso_user
           and (users.email_confirmed_at is not null or users.phone_confirmed_at is null)
         limit 2";
    const IS_ADDRESS_TAKEN = "
        select 1
          from auth.users
         where lower(users.email) = $1
           and users.aud = $2
           and not users.is_sso_user
           and users.id is distinct from $3
         limit 1";
    /// Like [`LOCK_OWNER_OF_EMAIL`], but an unproved address of an account does not count, and no
    /// row is locked.
    const IS_ADDRESS_PROVED = "
        select 1
          from auth.users
         where users.aud = $2
           and not users.is_sso_user
           and users.id is distinct from $3
           and users.id in (select identities.user_id
                              from auth.identities
                             where identities.email = $1
                               and (identities.identity_data ->> 'email_verified') = 'true'
                               and identities.provider <> 'phone'
                               and identities.provider not like 'sso:%'
                               and identities.provider <> all ($4)
                            union all
                            select owners.id
                              from auth.users as owners
                             where owners.instance_id = '00000000-0000-0000-0000-000000000000'
                               and lower(owners.email) = $1
                               and owners.email_confirmed_at is not null)
         limit 1";
}

/// Locks and returns the account that has an address in the default linking domain, as its own or
/// by an identity.
pub async fn lock_owner_of_email(
    tx: &Tx,
    email: &EmailAddress,
    aud: &str,
    other_domain_providers: &[String],
    except: Option<UserId>,
) -> Result<Option<User>, Error> {
    one(tx, LOCK_OWNER_OF_EMAIL, &[&email.as_str(), &aud, &other_domain_providers, &except]).await
}

/// A set of providers that share their accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkingDomain {
    /// All providers that are not in another domain.
    Default {
        /// Providers of other domains.
        except: Vec<String>,
    },
    /// Only the named providers.
    Named {
        /// Providers of the domain.
        providers: Vec<String>,
    },
}

/// Returns up to two users who have one of the (lower-case) addresses by an identity of the domain.
pub async fn owners_by_identity(
    tx: &Tx,
    addresses: &[String],
    aud: &str,
    domain: &LinkingDomain,
) -> Result<Vec<UserId>, Error> {
    let (only, except): (Option<&[String]>, &[String]) = match domain {
        LinkingDomain::Default { except } => (None, except),
        LinkingDomain::Named { providers } => (Some(providers), &[]),
    };
    let rows = tx.query(OWNERS_BY_IDENTITY, &[&addresses, &aud, &only, &except]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns up to two users of the default domain who have one of the (lower-case) addresses as
/// their own.
pub async fn owners_by_address(tx: &Tx, addresses: &[String], aud: &str) -> Result<Vec<UserId>, Error> {
    Ok(tx.query(OWNERS_BY_ADDRESS, &[&addresses, &aud]).await?.iter().map(|row| row.get(0)).collect())
}

/// Returns true if another account has the address as its own.
pub async fn is_address_taken(tx: &Tx, address: &str, aud: &str, except: Option<UserId>) -> Result<bool, Error> {
    Ok(tx.query_opt(IS_ADDRESS_TAKEN, &[&address, &aud, &except]).await?.is_some())
}

/// Returns true if another account of the default linking domain has proved the address, as its own
/// or by an identity.
pub async fn is_address_proved(
    tx: &Tx,
    address: &str,
    aud: &str,
    except: Option<UserId>,
    other_domain_providers: &[String],
) -> Result<bool, Error> {
    Ok(tx.query_opt(IS_ADDRESS_PROVED, &[&address, &aud, &except, &other_domain_providers]).await?.is_some())
}
