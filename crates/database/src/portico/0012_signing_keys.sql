-- The signing keys of access tokens that `portico keys` has made, for all servers on this database. Keys of the configuration have a row
-- here only once they are revoked. Not granted to any role: a row decides which tokens are valid.
create table portico.signing_keys (
  -- `kid` of its tokens.
  id text primary key,
  algorithm text not null,
  state text not null check (state in ('standby', 'in_use', 'previously_used', 'revoked')),
  -- The private JWK, encrypted with a key of the operator's that is not in the database.
  jwk text check ((state = 'revoked') = (jwk is null)),
  created_at timestamptz not null,
  in_use_since timestamptz,
  retired_at timestamptz,
  revoked_at timestamptz
);
-- One key signs at most; without any, the configured key does.
create unique index signing_keys_in_use_idx on portico.signing_keys ((true)) where state = 'in_use';
