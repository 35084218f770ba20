-- Conditions are checked before row security, and so can use an index, only if their functions are
-- leakproof: if neither results nor errors tell anything about rows that the caller may not see.
-- The errors of `lower` do not depend on the text. Lists of files search in lower case
-- (storage.search).
do $$
begin
  if pg_temp.is_superuser() and not (select proleakproof from pg_catalog.pg_proc where oid = 'pg_catalog.lower(text)'::regprocedure) then
    alter function pg_catalog.lower(text) leakproof;
  end if;
end $$;
