select vault.create_secret('http://api.supabase.internal:8000', 'supabase_url');
