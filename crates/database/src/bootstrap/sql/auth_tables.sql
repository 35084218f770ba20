-- Tables of schema auth in their final state: names, order, types, defaults, constraints and
-- indexes are contract.
set role supabase_auth_admin;
create sequence if not exists auth.refresh_tokens_id_seq;

select pg_temp.ensure_table('auth.users', $columns$
  instance_id uuid
  id uuid not null
  aud varchar(255)
  role varchar(255)
  email varchar(255)
  encrypted_password varchar(255)
  email_confirmed_at timestamptz
  invited_at timestamptz
  confirmation_token varchar(255)
  confirmation_sent_at timestamptz
  recovery_token varchar(255)
  recovery_sent_at timestamptz
  email_change_token_new varchar(255)
  email_change varchar(255)
  email_change_sent_at timestamptz
  last_sign_in_at timestamptz
  raw_app_meta_data jsonb
  raw_user_meta_data jsonb
  is_super_admin bool
  created_at timestamptz
  updated_at timestamptz
  phone text default null::varchar
  phone_confirmed_at timestamptz
  phone_change text default ''::varchar
  phone_change_token varchar(255) default ''
  phone_change_sent_at timestamptz
  confirmed_at timestamptz generated always as (least(email_confirmed_at, phone_confirmed_at)) stored
  email_change_token_current varchar(255) default ''
  email_change_confirm_status smallint default 0
  banned_until timestamptz
  reauthentication_token varchar(255) default ''
  reauthentication_sent_at timestamptz
  is_sso_user bool default false not null
  deleted_at timestamptz
  is_anonymous bool default false not null
$columns$, $constraints$
  users_phone_key unique (phone)
  users_pkey primary key (id)
  users_email_change_confirm_status_check check (((email_change_confirm_status >= 0) and (email_change_confirm_status <= 2)))
$constraints$);
create unique index if not exists confirmation_token_idx on auth.users (confirmation_token) where (confirmation_token !~ '^[0-9 ]*$');
create unique index if not exists email_change_token_current_idx on auth.users (email_change_token_current) where (email_change_token_current !~ '^[0-9 ]*$');
create unique index if not exists email_change_token_new_idx on auth.users (email_change_token_new) where (email_change_token_new !~ '^[0-9 ]*$');
create unique index if not exists reauthentication_token_idx on auth.users (reauthentication_token) where (reauthentication_token !~ '^[0-9 ]*$');
create unique index if not exists recovery_token_idx on auth.users (recovery_token) where (recovery_token !~ '^[0-9 ]*$');
create unique index if not exists users_email_partial_key on auth.users (email) where (is_sso_user = false);
create index if not exists users_instance_id_email_idx on auth.users (instance_id, lower(email));
create index if not exists users_instance_id_idx on auth.users (instance_id);
create index if not exists users_is_anonymous_idx on auth.users (is_anonymous);

select pg_temp.ensure_table('auth.instances', $columns$
  id uuid not null
  uuid uuid
  raw_base_config text
  created_at timestamptz
  updated_at timestamptz
$columns$, $constraints$
  instances_pkey primary key (id)
$constraints$);

select pg_temp.ensure_table('auth.schema_migrations', $columns$
  version varchar(255) not null
$columns$, $constraints$
  schema_migrations_pkey primary key (version)
$constraints$);

select pg_temp.ensure_table('auth.audit_log_entries', $columns$
  instance_id uuid
  id uuid not null
  payload json
  created_at timestamptz
  ip_address varchar(64) default '' not null
$columns$, $constraints$
  audit_log_entries_pkey primary key (id)
$constraints$);
create index if not exists audit_logs_instance_id_idx on auth.audit_log_entries (instance_id);

select pg_temp.ensure_table('auth.oauth_clients', $columns$
  id uuid not null
  client_secret_hash text
  registration_type auth.oauth_registration_type not null
  redirect_uris text not null
  grant_types text not null
  client_name text
  client_uri text
  logo_uri text
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
  deleted_at timestamptz
  client_type auth.oauth_client_type default 'confidential' not null
  token_endpoint_auth_method text not null
$columns$, $constraints$
  oauth_clients_pkey primary key (id)
  oauth_clients_client_name_length check ((char_length(client_name) <= 1024))
  oauth_clients_client_uri_length check ((char_length(client_uri) <= 2048))
  oauth_clients_logo_uri_length check ((char_length(logo_uri) <= 2048))
  oauth_clients_token_endpoint_auth_method_check check ((token_endpoint_auth_method = any (array['client_secret_basic', 'client_secret_post', 'none'])))
$constraints$);
create index if not exists oauth_clients_deleted_at_idx on auth.oauth_clients (deleted_at);

select pg_temp.ensure_table('auth.oauth_client_states', $columns$
  id uuid not null
  provider_type text not null
  code_verifier text
  created_at timestamptz not null
$columns$, $constraints$
  oauth_client_states_pkey primary key (id)
$constraints$);
create index if not exists idx_oauth_client_states_created_at on auth.oauth_client_states (created_at);

select pg_temp.ensure_table('auth.sso_providers', $columns$
  id uuid not null
  resource_id text
  created_at timestamptz
  updated_at timestamptz
  disabled bool
$columns$, $constraints$
  sso_providers_pkey primary key (id)
  "resource_id not empty" check (((resource_id = null) or (char_length(resource_id) > 0)))
$constraints$);
create unique index if not exists sso_providers_resource_id_idx on auth.sso_providers (lower(resource_id));
create index if not exists sso_providers_resource_id_pattern_idx on auth.sso_providers (resource_id text_pattern_ops);

select pg_temp.ensure_table('auth.sso_domains', $columns$
  id uuid not null
  sso_provider_id uuid not null
  domain text not null
  created_at timestamptz
  updated_at timestamptz
$columns$, $constraints$
  sso_domains_pkey primary key (id)
  sso_domains_sso_provider_id_fkey foreign key (sso_provider_id) references auth.sso_providers(id) on delete cascade
  "domain not empty" check ((char_length(domain) > 0))
$constraints$);
create unique index if not exists sso_domains_domain_idx on auth.sso_domains (lower(domain));
create index if not exists sso_domains_sso_provider_id_idx on auth.sso_domains (sso_provider_id);

select pg_temp.ensure_table('auth.saml_providers', $columns$
  id uuid not null
  sso_provider_id uuid not null
  entity_id text not null
  metadata_xml text not null
  metadata_url text
  attribute_mapping jsonb
  created_at timestamptz
  updated_at timestamptz
  name_id_format text
$columns$, $constraints$
  saml_providers_entity_id_key unique (entity_id)
  saml_providers_pkey primary key (id)
  saml_providers_sso_provider_id_fkey foreign key (sso_provider_id) references auth.sso_providers(id) on delete cascade
  "entity_id not empty" check ((char_length(entity_id) > 0))
  "metadata_url not empty" check (((metadata_url = null) or (char_length(metadata_url) > 0)))
  "metadata_xml not empty" check ((char_length(metadata_xml) > 0))
$constraints$);
create index if not exists saml_providers_sso_provider_id_idx on auth.saml_providers (sso_provider_id);

select pg_temp.ensure_table('auth.flow_state', $columns$
  id uuid not null
  user_id uuid
  auth_code text
  code_challenge_method auth.code_challenge_method
  code_challenge text
  provider_type text not null
  provider_access_token text
  provider_refresh_token text
  created_at timestamptz
  updated_at timestamptz
  authentication_method text not null
  auth_code_issued_at timestamptz
  invite_token text
  referrer text
  oauth_client_state_id uuid
  linking_target_id uuid
  email_optional bool default false not null
$columns$, $constraints$
  flow_state_pkey primary key (id)
$constraints$);
create index if not exists flow_state_created_at_idx on auth.flow_state (created_at desc);
create index if not exists idx_auth_code on auth.flow_state (auth_code);
create index if not exists idx_user_id_auth_method on auth.flow_state (user_id, authentication_method);

select pg_temp.ensure_table('auth.saml_relay_states', $columns$
  id uuid not null
  sso_provider_id uuid not null
  request_id text not null
  for_email text
  redirect_to text
  created_at timestamptz
  updated_at timestamptz
  flow_state_id uuid
$columns$, $constraints$
  saml_relay_states_pkey primary key (id)
  saml_relay_states_flow_state_id_fkey foreign key (flow_state_id) references auth.flow_state(id) on delete cascade
  saml_relay_states_sso_provider_id_fkey foreign key (sso_provider_id) references auth.sso_providers(id) on delete cascade
  "request_id not empty" check ((char_length(request_id) > 0))
$constraints$);
create index if not exists saml_relay_states_created_at_idx on auth.saml_relay_states (created_at desc);
create index if not exists saml_relay_states_for_email_idx on auth.saml_relay_states (for_email);
create index if not exists saml_relay_states_sso_provider_id_idx on auth.saml_relay_states (sso_provider_id);

select pg_temp.ensure_table('auth.identities', $columns$
  provider_id text not null
  user_id uuid not null
  identity_data jsonb not null
  provider text not null
  last_sign_in_at timestamptz
  created_at timestamptz
  updated_at timestamptz
  email text generated always as (lower((identity_data ->> 'email'))) stored
  id uuid default gen_random_uuid() not null
$columns$, $constraints$
  identities_provider_id_provider_unique unique (provider_id, provider)
  identities_pkey primary key (id)
  identities_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
$constraints$);
create index if not exists identities_email_idx on auth.identities (email text_pattern_ops);
create index if not exists identities_user_id_idx on auth.identities (user_id);

select pg_temp.ensure_table('auth.sessions', $columns$
  id uuid not null
  user_id uuid not null
  created_at timestamptz
  updated_at timestamptz
  factor_id uuid
  aal auth.aal_level
  not_after timestamptz
  refreshed_at timestamp
  user_agent text
  ip inet
  tag text
  oauth_client_id uuid
  refresh_token_hmac_key text
  refresh_token_counter bigint
  scopes text
$columns$, $constraints$
  sessions_pkey primary key (id)
  sessions_oauth_client_id_fkey foreign key (oauth_client_id) references auth.oauth_clients(id) on delete cascade
  sessions_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
  sessions_scopes_length check ((char_length(scopes) <= 4096))
$constraints$);
create index if not exists sessions_not_after_idx on auth.sessions (not_after desc);
create index if not exists sessions_oauth_client_id_idx on auth.sessions (oauth_client_id);
create index if not exists sessions_user_id_idx on auth.sessions (user_id);
create index if not exists user_id_created_at_idx on auth.sessions (user_id, created_at);

select pg_temp.ensure_table('auth.refresh_tokens', $columns$
  instance_id uuid
  id bigint default nextval('auth.refresh_tokens_id_seq') not null
  token varchar(255)
  user_id varchar(255)
  revoked bool
  created_at timestamptz
  updated_at timestamptz
  parent varchar(255)
  session_id uuid
$columns$, $constraints$
  refresh_tokens_token_unique unique (token)
  refresh_tokens_pkey primary key (id)
  refresh_tokens_session_id_fkey foreign key (session_id) references auth.sessions(id) on delete cascade
$constraints$);
create index if not exists refresh_tokens_instance_id_idx on auth.refresh_tokens (instance_id);
create index if not exists refresh_tokens_instance_id_user_id_idx on auth.refresh_tokens (instance_id, user_id);
create index if not exists refresh_tokens_parent_idx on auth.refresh_tokens (parent);
create index if not exists refresh_tokens_session_id_revoked_idx on auth.refresh_tokens (session_id, revoked);
create index if not exists refresh_tokens_updated_at_idx on auth.refresh_tokens (updated_at desc);

select pg_temp.ensure_table('auth.mfa_factors', $columns$
  id uuid not null
  user_id uuid not null
  friendly_name text
  factor_type auth.factor_type not null
  status auth.factor_status not null
  created_at timestamptz not null
  updated_at timestamptz not null
  secret text
  phone text
  last_challenged_at timestamptz
  web_authn_credential jsonb
  web_authn_aaguid uuid
  last_webauthn_challenge_data jsonb
$columns$, $constraints$
  mfa_factors_last_challenged_at_key unique (last_challenged_at)
  mfa_factors_pkey primary key (id)
  mfa_factors_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
$constraints$);
create index if not exists factor_id_created_at_idx on auth.mfa_factors (user_id, created_at);
create unique index if not exists mfa_factors_user_friendly_name_unique on auth.mfa_factors (friendly_name, user_id) where (trim(both from friendly_name) <> '');
create index if not exists mfa_factors_user_id_idx on auth.mfa_factors (user_id);
create unique index if not exists unique_phone_factor_per_user on auth.mfa_factors (user_id, phone);

select pg_temp.ensure_table('auth.mfa_challenges', $columns$
  id uuid not null
  factor_id uuid not null
  created_at timestamptz not null
  verified_at timestamptz
  ip_address inet not null
  otp_code text
  web_authn_session_data jsonb
$columns$, $constraints$
  mfa_challenges_pkey primary key (id)
  mfa_challenges_auth_factor_id_fkey foreign key (factor_id) references auth.mfa_factors(id) on delete cascade
$constraints$);
create index if not exists mfa_challenge_created_at_idx on auth.mfa_challenges (created_at desc);

select pg_temp.ensure_table('auth.mfa_amr_claims', $columns$
  session_id uuid not null
  created_at timestamptz not null
  updated_at timestamptz not null
  authentication_method text not null
  id uuid not null
$columns$, $constraints$
  mfa_amr_claims_session_id_authentication_method_pkey unique (session_id, authentication_method)
  amr_id_pk primary key (id)
  mfa_amr_claims_session_id_fkey foreign key (session_id) references auth.sessions(id) on delete cascade
$constraints$);

select pg_temp.ensure_table('auth.one_time_tokens', $columns$
  id uuid not null
  user_id uuid not null
  token_type auth.one_time_token_type not null
  token_hash text not null
  relates_to text not null
  created_at timestamp default now() not null
  updated_at timestamp default now() not null
$columns$, $constraints$
  one_time_tokens_pkey primary key (id)
  one_time_tokens_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
  one_time_tokens_token_hash_check check ((char_length(token_hash) > 0))
$constraints$);
create index if not exists one_time_tokens_relates_to_hash_idx on auth.one_time_tokens using hash (relates_to);
create index if not exists one_time_tokens_token_hash_hash_idx on auth.one_time_tokens using hash (token_hash);
create unique index if not exists one_time_tokens_user_id_token_type_key on auth.one_time_tokens (user_id, token_type);

select pg_temp.ensure_table('auth.oauth_authorizations', $columns$
  id uuid not null
  authorization_id text not null
  client_id uuid not null
  user_id uuid
  redirect_uri text not null
  scope text not null
  state text
  resource text
  code_challenge text
  code_challenge_method auth.code_challenge_method
  response_type auth.oauth_response_type default 'code' not null
  status auth.oauth_authorization_status default 'pending' not null
  authorization_code text
  created_at timestamptz default now() not null
  expires_at timestamptz default (now() + interval '3 minutes') not null
  approved_at timestamptz
  nonce text
$columns$, $constraints$
  oauth_authorizations_authorization_code_key unique (authorization_code)
  oauth_authorizations_authorization_id_key unique (authorization_id)
  oauth_authorizations_pkey primary key (id)
  oauth_authorizations_client_id_fkey foreign key (client_id) references auth.oauth_clients(id) on delete cascade
  oauth_authorizations_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
  oauth_authorizations_authorization_code_length check ((char_length(authorization_code) <= 255))
  oauth_authorizations_code_challenge_length check ((char_length(code_challenge) <= 128))
  oauth_authorizations_expires_at_future check ((expires_at > created_at))
  oauth_authorizations_nonce_length check ((char_length(nonce) <= 255))
  oauth_authorizations_redirect_uri_length check ((char_length(redirect_uri) <= 2048))
  oauth_authorizations_resource_length check ((char_length(resource) <= 2048))
  oauth_authorizations_scope_length check ((char_length(scope) <= 4096))
  oauth_authorizations_state_length check ((char_length(state) <= 4096))
$constraints$);
create index if not exists oauth_auth_pending_exp_idx on auth.oauth_authorizations (expires_at) where (status = 'pending');

select pg_temp.ensure_table('auth.oauth_consents', $columns$
  id uuid not null
  user_id uuid not null
  client_id uuid not null
  scopes text not null
  granted_at timestamptz default now() not null
  revoked_at timestamptz
$columns$, $constraints$
  oauth_consents_user_client_unique unique (user_id, client_id)
  oauth_consents_pkey primary key (id)
  oauth_consents_client_id_fkey foreign key (client_id) references auth.oauth_clients(id) on delete cascade
  oauth_consents_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
  oauth_consents_revoked_after_granted check (((revoked_at is null) or (revoked_at >= granted_at)))
  oauth_consents_scopes_length check ((char_length(scopes) <= 2048))
  oauth_consents_scopes_not_empty check ((char_length(trim(both from scopes)) > 0))
$constraints$);
create index if not exists oauth_consents_active_client_idx on auth.oauth_consents (client_id) where (revoked_at is null);
create index if not exists oauth_consents_active_user_client_idx on auth.oauth_consents (user_id, client_id) where (revoked_at is null);
create index if not exists oauth_consents_user_order_idx on auth.oauth_consents (user_id, granted_at desc);

select pg_temp.ensure_table('auth.custom_oauth_providers', $columns$
  id uuid default gen_random_uuid() not null
  provider_type text not null
  identifier text not null
  name text not null
  client_id text not null
  client_secret text not null
  acceptable_client_ids text[] default '{}' not null
  scopes text[] default '{}' not null
  pkce_enabled bool default true not null
  attribute_mapping jsonb default '{}' not null
  authorization_params jsonb default '{}' not null
  enabled bool default true not null
  email_optional bool default false not null
  issuer text
  discovery_url text
  skip_nonce_check bool default false not null
  cached_discovery jsonb
  discovery_cached_at timestamptz
  authorization_url text
  token_url text
  userinfo_url text
  jwks_uri text
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
  custom_claims_allowlist text[] default '{}' not null
$columns$, $constraints$
  custom_oauth_providers_identifier_key unique (identifier)
  custom_oauth_providers_pkey primary key (id)
  custom_oauth_providers_authorization_url_https check (((authorization_url is null) or (authorization_url ~~ 'https://%')))
  custom_oauth_providers_authorization_url_length check (((authorization_url is null) or (char_length(authorization_url) <= 2048)))
  custom_oauth_providers_client_id_length check (((char_length(client_id) >= 1) and (char_length(client_id) <= 512)))
  custom_oauth_providers_discovery_url_length check (((discovery_url is null) or (char_length(discovery_url) <= 2048)))
  custom_oauth_providers_identifier_format check ((identifier ~ '^[a-z0-9][a-z0-9:-]{0,48}[a-z0-9]$'))
  custom_oauth_providers_issuer_length check (((issuer is null) or ((char_length(issuer) >= 1) and (char_length(issuer) <= 2048))))
  custom_oauth_providers_jwks_uri_https check (((jwks_uri is null) or (jwks_uri ~~ 'https://%')))
  custom_oauth_providers_jwks_uri_length check (((jwks_uri is null) or (char_length(jwks_uri) <= 2048)))
  custom_oauth_providers_name_length check (((char_length(name) >= 1) and (char_length(name) <= 100)))
  custom_oauth_providers_oauth2_requires_endpoints check (((provider_type <> 'oauth2') or ((authorization_url is not null) and (token_url is not null) and (userinfo_url is not null))))
  custom_oauth_providers_oidc_discovery_url_https check (((provider_type <> 'oidc') or (discovery_url is null) or (discovery_url ~~ 'https://%')))
  custom_oauth_providers_oidc_issuer_https check (((provider_type <> 'oidc') or (issuer is null) or (issuer ~~ 'https://%')))
  custom_oauth_providers_oidc_requires_issuer check (((provider_type <> 'oidc') or (issuer is not null)))
  custom_oauth_providers_provider_type_check check ((provider_type = any (array['oauth2', 'oidc'])))
  custom_oauth_providers_token_url_https check (((token_url is null) or (token_url ~~ 'https://%')))
  custom_oauth_providers_token_url_length check (((token_url is null) or (char_length(token_url) <= 2048)))
  custom_oauth_providers_userinfo_url_https check (((userinfo_url is null) or (userinfo_url ~~ 'https://%')))
  custom_oauth_providers_userinfo_url_length check (((userinfo_url is null) or (char_length(userinfo_url) <= 2048)))
$constraints$);
create index if not exists custom_oauth_providers_created_at_idx on auth.custom_oauth_providers (created_at);
create index if not exists custom_oauth_providers_enabled_idx on auth.custom_oauth_providers (enabled);
create index if not exists custom_oauth_providers_identifier_idx on auth.custom_oauth_providers (identifier);
create index if not exists custom_oauth_providers_provider_type_idx on auth.custom_oauth_providers (provider_type);

select pg_temp.ensure_table('auth.webauthn_credentials', $columns$
  id uuid default gen_random_uuid() not null
  user_id uuid not null
  credential_id bytea not null
  public_key bytea not null
  attestation_type text default '' not null
  aaguid uuid
  sign_count bigint default 0 not null
  transports jsonb default '[]' not null
  backup_eligible bool default false not null
  backed_up bool default false not null
  friendly_name text default '' not null
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
  last_used_at timestamptz
$columns$, $constraints$
  webauthn_credentials_pkey primary key (id)
  webauthn_credentials_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
$constraints$);
create unique index if not exists webauthn_credentials_credential_id_key on auth.webauthn_credentials (credential_id);
create index if not exists webauthn_credentials_user_id_idx on auth.webauthn_credentials (user_id);

select pg_temp.ensure_table('auth.webauthn_challenges', $columns$
  id uuid default gen_random_uuid() not null
  user_id uuid
  challenge_type text not null
  session_data jsonb not null
  created_at timestamptz default now() not null
  expires_at timestamptz not null
$columns$, $constraints$
  webauthn_challenges_pkey primary key (id)
  webauthn_challenges_user_id_fkey foreign key (user_id) references auth.users(id) on delete cascade
  webauthn_challenges_challenge_type_check check ((challenge_type = any (array['signup', 'registration', 'authentication'])))
$constraints$);
create index if not exists webauthn_challenges_expires_at_idx on auth.webauthn_challenges (expires_at);
create index if not exists webauthn_challenges_user_id_idx on auth.webauthn_challenges (user_id);

alter sequence auth.refresh_tokens_id_seq owned by auth.refresh_tokens.id;
comment on table auth.users is 'Auth: Stores user login data within a secure schema.';
reset role;
