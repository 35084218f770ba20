-- A person with everything that a response contains of them: `complete` of
-- crates/auth/src/sql/users/lookup.rs.
select users.id, users.aud, users.role, users.email, users.encrypted_password,
       users.email_confirmed_at, users.invited_at, users.confirmation_token, users.confirmation_sent_at,
       users.recovery_token, users.recovery_sent_at, users.email_change_token_new, users.email_change_token_current,
       users.email_change, users.email_change_sent_at, users.email_change_confirm_status, users.last_sign_in_at,
       users.raw_app_meta_data, users.raw_user_meta_data, users.phone, users.phone_confirmed_at, users.phone_change,
       users.phone_change_token, users.phone_change_sent_at, users.confirmed_at, users.reauthentication_token,
       users.reauthentication_sent_at, users.banned_until, users.is_sso_user, users.deleted_at, users.is_anonymous,
       users.created_at, users.updated_at
  from auth.users where users.id = ('00000000-0000-4000-8000-' || :number)::uuid;
select identities.id, identities.provider_id, identities.user_id, identities.identity_data,
       identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at,
       identities.email
  from auth.identities where identities.user_id = ('00000000-0000-4000-8000-' || :number)::uuid order by identities.created_at, identities.id;
select factors.id, factors.friendly_name, factors.factor_type::text, factors.status::text,
       factors.phone, factors.created_at, factors.updated_at, factors.last_challenged_at
  from auth.mfa_factors as factors where factors.user_id = ('00000000-0000-4000-8000-' || :number)::uuid order by factors.created_at, factors.id;
