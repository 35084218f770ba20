-- The newest time step whose code an authenticator app has proved, so that a code is used once. Only rows of the last minutes matter.
create table portico.totp_steps (
  factor_id uuid primary key,
  last_step bigint not null
);
create index totp_steps_last_step_idx on portico.totp_steps (last_step);
grant select, insert, update, delete on portico.totp_steps to supabase_auth_admin;

-- The unused recovery codes of accounts with a second factor: SHA-256 of the account's id and the code.
create table portico.recovery_codes (
  user_id uuid primary key,
  hashes bytea[] not null,
  created_at timestamptz not null
);
grant select, insert, update, delete on portico.recovery_codes to supabase_auth_admin;
