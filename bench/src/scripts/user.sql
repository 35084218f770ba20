-- GET /auth/v1/user: `signed_in` of crates/auth/src/sql/users/lookup.rs, one round trip without a
-- transaction. The first transaction of a client looks up whose account it plays.
\if :started
\else
select users.id as user_id, sessions.id as session_id
  from auth.users join auth.sessions on sessions.user_id = users.id
 where users.email = 'limit-' || :client_id || '@example.com' limit 1 \gset
\set started 1
\endif
\startpipeline
select users.id, users.aud, users.role, users.email, users.encrypted_password,
       users.email_confirmed_at, users.invited_at, users.confirmation_token, users.confirmation_sent_at,
       users.recovery_token, users.recovery_sent_at, users.email_change_token_new, users.email_change_token_current,
       users.email_change, users.email_change_sent_at, users.email_change_confirm_status, users.last_sign_in_at,
       users.raw_app_meta_data, users.raw_user_meta_data, users.phone, users.phone_confirmed_at, users.phone_change,
       users.phone_change_token, users.phone_change_sent_at, users.confirmed_at, users.reauthentication_token,
       users.reauthentication_sent_at, users.banned_until, users.is_sso_user, users.deleted_at, users.is_anonymous,
       users.created_at, users.updated_at, sessions.id, sessions.created_at, sessions.aal::text
  from auth.users
  left join auth.sessions on sessions.id = :session_id and sessions.user_id = users.id
 where users.id = :user_id;
select identities.id, identities.provider_id, identities.user_id, identities.identity_data,
       identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at,
       identities.email
  from auth.identities where identities.user_id = :user_id order by identities.created_at, identities.id;
select factors.id, factors.friendly_name, factors.factor_type::text, factors.status::text,
       factors.phone, factors.created_at, factors.updated_at, factors.last_challenged_at
  from auth.mfa_factors as factors where factors.user_id = :user_id order by factors.created_at, factors.id;
\endpipeline
