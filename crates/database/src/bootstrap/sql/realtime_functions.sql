-- The functions for applications: the topic of the channel that a policy decides on, and messages
-- sent from SQL.
set role supabase_realtime_admin;

create or replace function realtime.topic() returns text language sql stable as $$
  select nullif(current_setting('realtime.topic', true), '')::text
$$;

create or replace function realtime.send(payload jsonb, event text, topic text, private boolean default true) returns void
language plpgsql as $$
declare
  message_id uuid := gen_random_uuid();
  final_payload jsonb := payload;
begin
  begin
    if jsonb_typeof(payload) = 'object' and not payload ? 'id' then
      final_payload := payload || jsonb_build_object('id', message_id);
    end if;
    -- Policies of the insert below read it
    perform set_config('realtime.topic', topic, true);
    insert into realtime.messages (id, payload, event, topic, private, extension)
    values (message_id, final_payload, event, topic, private, 'broadcast');
  exception when others then
    -- A message must never break the transaction that sends it
    raise warning 'WarnSendingBroadcastMessage: %', sqlerrm;
  end;
end $$;

create or replace function realtime.send_binary(payload bytea, event text, topic text, private boolean default true) returns void
language plpgsql as $$
begin
  begin
    perform set_config('realtime.topic', topic, true);
    insert into realtime.messages (id, binary_payload, event, topic, private, extension)
    values (gen_random_uuid(), payload, event, topic, private, 'broadcast');
  exception when others then
    raise warning 'WarnSendingBroadcastMessage: %', sqlerrm;
  end;
end $$;

create or replace function realtime.broadcast_changes(
  topic_name text, event_name text, operation text, table_name text, table_schema text, new record, old record,
  level text default 'ROW') returns void
language plpgsql as $$
begin
  if level = 'STATEMENT' then
    raise exception 'function can only be triggered for each row, not for each statement';
  end if;
  if operation not in ('INSERT', 'UPDATE', 'DELETE') then
    raise exception 'Unexpected operation type: %', operation;
  end if;
  perform realtime.send(
    jsonb_build_object('old_record', old, 'record', new, 'operation', operation, 'table', table_name, 'schema', table_schema),
    event_name, topic_name);
exception when others then
  raise exception 'Failed to process the row: %', sqlerrm;
end $$;
reset role;
