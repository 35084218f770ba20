-- What is there without asking. An extension that lies in another schema stays there.
do $$
declare name text;
begin
  foreach name in array '{pgcrypto,uuid-ossp,pg_stat_statements}'::text[] loop
    if not exists (select from pg_extension where extname = name) then
      perform pg_temp.attempt(format('extension %s', name), format('create extension %I with schema extensions', name));
    end if;
  end loop;
end $$;
