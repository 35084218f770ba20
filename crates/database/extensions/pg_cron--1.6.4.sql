-- The look of pg_cron. Jobs are rows; the server that runs this database runs them when they are due.
create schema if not exists cron;

create sequence cron.jobid_seq;
create table cron.job (
  jobid bigint primary key default pg_catalog.nextval('cron.jobid_seq'),
  schedule text not null,
  command text not null,
  nodename text not null default 'localhost',
  nodeport integer not null default 5432,
  database text not null default pg_catalog.current_database(),
  username text not null default current_user,
  active boolean not null default true,
  jobname text,
  constraint jobname_username_uniq unique (jobname, username)
);
alter table cron.job enable row level security;
create policy cron_job_policy on cron.job using (username = current_user);

create sequence cron.runid_seq;
create table cron.job_run_details (
  jobid bigint,
  runid bigint primary key default pg_catalog.nextval('cron.runid_seq'),
  job_pid integer,
  database text,
  username text,
  command text,
  status text,
  return_message text,
  start_time timestamptz,
  end_time timestamptz
);
alter table cron.job_run_details enable row level security;
create policy cron_job_run_details_policy on cron.job_run_details using (username = current_user);

-- The way in which a role without rights on the table writes its own rows, and none of another's: a view runs with its
-- owner's rights, while `current_user` in it stays the caller.
create view cron._own_job as
  select jobid, schedule, command, database, username, active, jobname from cron.job where username = current_user
  with check option;
alter view cron._own_job alter column active set default true;

-- Accepts what pg_cron accepts: its parser is the one of cron itself, and an interval of seconds.
create function cron._check_schedule(schedule text) returns void language plpgsql immutable as $$
declare
  lowest constant integer[] := '{0,0,1,1,0}';
  highest constant integer[] := '{59,23,31,12,7}';
  months constant text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
  days constant text[] := '{sun,mon,tue,wed,thu,fri,sat}';
  text_of_schedule constant text := lower(regexp_replace(schedule, '^\s+|\s+$', '', 'g'));
  fields constant text[] := regexp_split_to_array(text_of_schedule, '\s+');
  item text;
  part text[];
  value text;
  number integer;
begin
  if text_of_schedule ~ '^0*([1-9]|[1-5][0-9])\s*seconds?$' or text_of_schedule ~ '^@(hourly|daily|midnight|weekly|monthly|yearly|annually|reboot)$' then
    return;
  elsif cardinality(fields) <> 5 then
    raise exception 'invalid schedule: %', schedule using hint = 'Use cron format (e.g. 5 4 * * *), or interval format ''[1-59] seconds''';
  end if;
  for place in 1..5 loop
    foreach item in array string_to_array(fields[place], ',') loop
      continue when place = 3 and item = '$';
      -- All values, one value or a range, each with a step or without
      part := regexp_match(item, '^(?:\*|([a-z]+|\d{1,9})(?:-([a-z]+|\d{1,9}))?)(?:/(\d{1,9}))?$');
      foreach value in array array[part[1], part[2]] loop
        number := case
          when value ~ '^\d' then value::integer
          when place = 4 then array_position(months, value)
          when place = 5 then array_position(days, value) - 1
        end;
        if value is not null and (number is null or number not between lowest[place] and highest[place]) then
          part := null;
        end if;
      end loop;
      if part is null or part[3]::integer = 0 then
        raise exception 'invalid schedule: %', schedule using hint = 'Use cron format (e.g. 5 4 * * *), or interval format ''[1-59] seconds''';
      end if;
    end loop;
  end loop;
end $$;

create function cron.schedule_in_database(
  job_name text, schedule text, command text, database text, username text default null, active boolean default true)
returns bigint language plpgsql as $$
#variable_conflict use_column
declare job_id bigint;
begin
  perform cron._check_schedule(schedule_in_database.schedule);
  if coalesce(schedule_in_database.username, current_user) <> current_user
     and not (select rolsuper from pg_catalog.pg_roles where rolname = current_user)
  then
    raise exception 'must be superuser to create a job for another role' using errcode = '42501';
  end if;
  if coalesce(schedule_in_database.username, current_user) <> current_user then
    insert into cron.job (schedule, command, database, username, active, jobname)
    values (schedule_in_database.schedule, schedule_in_database.command, schedule_in_database.database,
            schedule_in_database.username, schedule_in_database.active, job_name)
    on conflict (jobname, username) do update
      set schedule = excluded.schedule, command = excluded.command, database = excluded.database, active = excluded.active
    returning jobid into job_id;
  else
    update cron._own_job
       set schedule = schedule_in_database.schedule, command = schedule_in_database.command,
           database = schedule_in_database.database, active = schedule_in_database.active
     where jobname = job_name
    returning jobid into job_id;
    if job_id is null then
      insert into cron._own_job (jobid, schedule, command, database, username, active, jobname)
      values (pg_catalog.nextval('cron.jobid_seq'), schedule_in_database.schedule, schedule_in_database.command,
              schedule_in_database.database, current_user, schedule_in_database.active, job_name)
      returning jobid into job_id;
    end if;
  end if;
  perform pg_catalog.pg_notify('portico_cron', '');
  return job_id;
end $$;

create function cron.schedule(job_name text, schedule text, command text) returns bigint language sql as $$
  select cron.schedule_in_database(job_name, schedule, command, pg_catalog.current_database())
$$;
create function cron.schedule(schedule text, command text) returns bigint language sql as $$
  select cron.schedule_in_database(null, schedule, command, pg_catalog.current_database())
$$;

create function cron.alter_job(
  job_id bigint, schedule text default null, command text default null, database text default null, username text default null,
  active boolean default null)
returns void language plpgsql as $$
#variable_conflict use_column
begin
  if alter_job.schedule is not null then
    perform cron._check_schedule(alter_job.schedule);
  end if;
  if alter_job.username is not null and alter_job.username <> current_user then
    if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
      raise exception 'must be superuser to alter the owner of a job' using errcode = '42501';
    end if;
    update cron.job set username = alter_job.username where jobid = job_id;
  end if;
  update cron._own_job
     set schedule = coalesce(alter_job.schedule, schedule), command = coalesce(alter_job.command, command),
         database = coalesce(alter_job.database, database), active = coalesce(alter_job.active, active)
   where jobid = job_id;
  if not found and alter_job.username is null then
    raise exception 'Job % does not exist or you don''t own it', job_id;
  end if;
  perform pg_catalog.pg_notify('portico_cron', '');
end $$;

create function cron.unschedule(job_id bigint) returns boolean language plpgsql as $$
begin
  delete from cron._own_job where jobid = job_id;
  if not found then
    raise exception 'could not find valid entry for job ''%''', job_id;
  end if;
  perform pg_catalog.pg_notify('portico_cron', '');
  return true;
end $$;

create function cron.unschedule(job_name text) returns boolean language plpgsql as $$
begin
  delete from cron._own_job where jobname = job_name;
  if not found then
    raise exception 'could not find valid entry for job ''%''', job_name;
  end if;
  perform pg_catalog.pg_notify('portico_cron', '');
  return true;
end $$;

-- Once for every role: who may use the schema is decided by its grant
grant select, insert, update, delete on cron._own_job to public;
grant usage on sequence cron.jobid_seq to public;
grant select on cron.job to public;
grant select, delete on cron.job_run_details to public;
do $$
begin
  if exists (select from pg_catalog.pg_roles where rolname = 'postgres') then
    grant usage on schema cron to postgres with grant option;
    grant execute on all functions in schema cron to postgres with grant option;
    grant select on cron.job to postgres with grant option;
    -- Neither trigger nor references: both run functions of the project with the rights of the table's owner
    grant select, insert, update, delete, truncate on cron.job_run_details to postgres with grant option;
  end if;
end $$;

-- Rows of an extension's tables are in dumps only when asked for; outside of `create extension` this is refused
do $$
begin
  perform pg_catalog.pg_extension_config_dump('cron.job', '');
  perform pg_catalog.pg_extension_config_dump('cron.jobid_seq', '');
exception when feature_not_supported then
  null;
end $$;
