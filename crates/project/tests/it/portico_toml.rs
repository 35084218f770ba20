//! `supabase/portico.toml`

use std::time::Duration;

use portico_base::Secret;
use portico_project::portico_toml::{
    AnalyticsAdapter, BreachCheckMode, ClusterMode, ObjectStoreCredentials, ObjectStoreRole, ObjectStoreSettings,
    SendRate, Settings,
};

use crate::folder::Folder;

fn settings(text: &str) -> Result<Settings, String> {
    let folder = Folder::with("supabase/portico.toml", text);
    Settings::load(&folder.load()).map_err(|error| error.to_string())
}

#[test]
fn without_a_file_everything_has_its_default() {
    let settings = Settings::load(&Folder::new().load()).unwrap();
    assert_eq!(settings.server.drain, Duration::from_secs(10));
    assert_eq!(settings.server.max_connections, None);
    assert_eq!(settings.web.analytics, AnalyticsAdapter::Builtin);
    assert_eq!(settings.web.brand.name, "Portico");
    assert!(settings.emulators.google && settings.database.url.is_none());
}

#[test]
fn every_setting_is_parsed() {
    let settings = settings(
        "[server]\nbind = \"0.0.0.0\"\npublic_url = \"https://app.example.com/\"\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n\
         drain_seconds = 3\nmax_connections = 500\nmax_connections_per_address = 50\n[database]\nurl = \"postgresql://u:p@db.example/app\"\npool_size = 4\ndata = \"../data\"\n\
         [web.brand]\nname = \"Shop\"\naccent = \"#4f46e5\"\nmark = \"mark.svg\"\n\
         [web.analytics]\nadapter = \"posthog\"\nposthog_key = \"phc_x\"\n\
         [texts]\ngateway_url = \"https://api.example.com\"\ntwilio_content_sid = \"HX1\"\n[emulators]\ngoogle = false\n",
    )
    .unwrap();
    assert_eq!(settings.server.bind, Some([0, 0, 0, 0].into()));
    assert_eq!(settings.server.public_url.as_deref(), Some("https://app.example.com"));
    assert_eq!(settings.server.trusted_proxies.len(), 2);
    assert_eq!(settings.server.drain, Duration::from_secs(3));
    assert_eq!(settings.server.max_connections.map(u32::from), Some(500));
    assert_eq!(settings.server.max_connections_per_address.map(u32::from), Some(50));
    assert_eq!(settings.database.pool_size, 4);
    assert_eq!(settings.web.brand.name, "Shop");
    assert!(matches!(settings.web.analytics, AnalyticsAdapter::Posthog { key, .. } if key == "phc_x"));
    assert_eq!(settings.texts.gateway_url.as_deref(), Some("https://api.example.com"));
    assert_eq!(settings.texts.twilio_content_sid.as_deref(), Some("HX1"));
    assert!(!settings.emulators.google);
}

#[test]
fn the_further_account_settings_are_parsed() {
    let auth = settings(
        "[auth]\nrequire_current_password = true\ncursor_pagination = true\nflow_state_expiry = \"10m\"\naudit_log_disabled = true\nsb_forwarded_for = true\njwt_valid_methods = [\"ES256\"]\n\
         oidc_cache_ttl = \"30m\"\nhttp_timeout = \"8s\"\nmax_request_duration = \"20s\"\n\
         [auth.allowed_id_token_issuers]\n\"https://id.example.com\" = [\"web\", \"phone\"]\n[auth.linking_domains]\nacme = \"staff\"\n\
         [auth.password]\nbreach_check = \"fail-closed\"\nbcrypt_cost = 12\n\
         [auth.sessions]\nsingle_per_user = true\ntags = [\"web\"]\nallow_low_aal = \"15m\"\n\
         [auth.refresh_tokens]\nalgorithm_version = 2\nupgrade_percentage = 50\nallow_reuse = true\n\
         [auth.captcha]\ntimeout = \"5s\"\n\
         [auth.email]\nmagic_link = false\nnotifications = true\nsecurity_page = \"https://app.example.com/me\"\nsign_in_page = \"https://app.example.com/in\"\nblocked_mail_servers = [\"mx.example.com\"]\ntemplate_max_age = \"1h\"\n\
         template_retry = \"1m\"\nname_servers = [\"192.0.2.53\", \"[2001:db8::53]:5353\"]\nauthorized_addresses = \"ada@example.com, grace@example.com\"\n\
         [auth.email.headers]\nX-Kind = \"$messageType\"\n[auth.email.templates]\nrecovery = \"/mails/recovery.html\"\n\
         [auth.email.link_paths]\nrecovery = \"https://app.example.com/reset\"\n\
         [auth.sms]\notp_length = 8\notp_expiry = \"10m\"\ntest_otp_valid_until = \"2030-01-31T12:00:00+02:00\"\n\
         [auth.rate_limit]\nheader = \"x-real-ip\"\nemails = \"100/30s\"\ntexts = 7\npasskeys = 9\n\
         [auth.passkey]\nmax_per_user = 3\nchallenge_expiry = \"1m\"\nrequire_user_verification = true\n\
         [auth.custom_providers]\nenabled = false\n[auth.hook]\nprivate_addresses = true\n\
         [auth.encryption]\ncurrent = \"k1\"\n[auth.encryption.keys]\nk1 = \"secret of k1\"\n",
    )
    .unwrap()
    .auth;
    assert_eq!(auth.require_current_password, Some(true));
    assert_eq!((auth.create_email_identity_on_password_set, auth.cursor_pagination), (None, Some(true)));
    assert_eq!(auth.flow_state_expiry, Some(Duration::from_secs(600)));
    assert_eq!(auth.jwt_valid_methods.as_deref(), Some(&["ES256".to_owned()][..]));
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs());
    assert_eq!((seconds(auth.oidc_cache_ttl), seconds(auth.http_timeout)), (Some(1800), Some(8)));
    assert_eq!((seconds(auth.max_request_duration), seconds(auth.captcha_timeout)), (Some(20), Some(5)));
    assert_eq!((seconds(auth.email.template_max_age), seconds(auth.email.template_retry)), (Some(3600), Some(60)));
    assert_eq!(auth.email.blocked_mail_servers.as_deref(), Some(&["mx.example.com".to_owned()][..]));
    let servers: Vec<String> = auth.email.name_servers.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.53:53", "[2001:db8::53]:5353"]);
    assert_eq!(auth.allowed_id_token_issuers["https://id.example.com"], ["web", "phone"]);
    assert_eq!(auth.linking_domains["acme"], "staff");
    assert_eq!(auth.password.breach_check, Some(BreachCheckMode::FailClosed));
    assert_eq!(auth.sessions.allow_low_aal, Some(Duration::from_secs(900)));
    assert_eq!(auth.refresh_tokens.algorithm_version, Some(2));
    assert_eq!(auth.email.authorized_addresses.as_ref().map(Vec::len), Some(2));
    assert_eq!(auth.email.headers, [("x-kind".to_owned(), "$messageType".to_owned())]);
    assert_eq!(auth.email.templates["recovery"], "/mails/recovery.html");
    assert_eq!(auth.email.notifications, Some(true));
    assert_eq!(auth.email.security_page.as_deref(), Some("https://app.example.com/me"));
    assert_eq!(auth.email.sign_in_page.as_deref(), Some("https://app.example.com/in"));
    assert_eq!(auth.email.link_paths.recovery.as_deref(), Some("https://app.example.com/reset"));
    assert_eq!((auth.sms.otp_length, auth.sms.otp_expiry), (Some(8), Some(Duration::from_secs(600))));
    assert_eq!(auth.sms.test_otp_valid_until.map(|until| until.unix_timestamp()), Some(1_896_084_000));
    assert_eq!(auth.rate_limits.header.as_deref(), Some("x-real-ip"));
    assert_eq!(auth.rate_limits.emails, Some(SendRate { count: 100, every: Some(Duration::from_secs(30)) }));
    assert_eq!(auth.rate_limits.texts, Some(SendRate { count: 7, every: None }));
    assert_eq!((auth.rate_limits.passkeys, auth.passkey.max_per_user), (Some(9), Some(3)));
    assert_eq!(auth.passkey.challenge_expiry, Some(Duration::from_secs(60)));
    assert_eq!(auth.passkey.require_user_verification, Some(true));
    assert_eq!((auth.custom_providers.enabled, auth.hook.private_addresses), (Some(false), Some(true)));
    assert_eq!(auth.encryption.keys["k1"].expose(), "secret of k1");
    assert!(!format!("{auth:?}").contains("secret of"));
}

#[test]
fn keys_in_a_list_keep_the_case_of_their_names() {
    let text = "[auth.encryption]\ncurrent = \"Prod-1\"\nkeys = [\"Prod-1:secret of 1\", \"prod-1:env(KEY_2)\"]\n";
    let folder = Folder::with("supabase/portico.toml", text);
    folder.put("supabase/.env", "KEY_2=\"secret of 2\"\n");
    let auth = Settings::load(&folder.load()).unwrap().auth;
    assert_eq!(auth.encryption.current.as_deref(), Some("Prod-1"));
    assert_eq!(auth.encryption.keys["Prod-1"].expose(), "secret of 1");
    assert_eq!(auth.encryption.keys["prod-1"].expose(), "secret of 2");
    // Without a table, the list is one text
    folder.put("supabase/portico.toml", "[auth.encryption]\ncurrent = \"A\"\n");
    folder.put("supabase/.env", "PORTICO_AUTH_ENCRYPTION_KEYS=\"A:one, b:two\"\n");
    let auth = Settings::load(&folder.load()).unwrap().auth;
    assert_eq!(auth.encryption.keys["A"].expose(), "one");
    assert_eq!(auth.encryption.keys["b"].expose(), "two");
}

#[test]
fn access_keys_of_s3_are_named_secrets() {
    let text = "[storage.s3]\nregion = \"eu-1\"\naccess_keys = [\"Backup:env(S3_SECRET)\", \"b2:secret of sixteen\"]\n";
    let folder = Folder::with("supabase/portico.toml", text);
    folder.put("supabase/.env", "S3_SECRET=\"another long secret\"\n");
    let s3 = Settings::load(&folder.load()).unwrap().storage.s3;
    assert_eq!((s3.region.as_deref(), s3.access_keys.len()), (Some("eu-1"), 2));
    assert_eq!(s3.access_keys["Backup"].expose(), "another long secret");
    assert!(!format!("{s3:?}").contains("secret of"));
}

#[test]
fn an_invalid_value_is_reported_with_its_line() {
    let table = [
        ("[server]\nbnd = 1\n", "supabase/portico.toml:2: unknown key server.bnd; did you mean server.bind?"),
        ("[sever]\n", "supabase/portico.toml:1: unknown key sever; did you mean server?"),
        ("[server]\nbind = \"everywhere\"\n", "expected an IP address"),
        ("[server]\npublic_url = \"app.example.com\"\n", "expected a URL"),
        ("[server]\ntrusted_proxies = [\"10.0.0.0/64\"]\n", "expected an address or network"),
        ("[database]\npool_size = 0\n", "expected at least 1"),
        ("[storage.s3]\naccess_keys = [\"A:short\"]\n", "storage.s3.access_keys: the key A cannot be used"),
        ("[storage.s3]\naccess_keys = [\"a/b:secret of sixteen\"]\n", "storage.s3.access_keys: a key cannot be used"),
        ("[storage.s3]\nregion = \"eu central\"\n", "storage.s3.region: expected a name"),
        ("[storage]\nresumable_lifetime = \"10s\"\n", "storage.resumable_lifetime: expected at least one minute"),
        ("[web.brand]\naccent = \"red;}body{\"\n", "expected a colour"),
        ("[web.analytics]\nadapter = \"ga4\"\n", "Missing required field in config: web.analytics.ga4_measurement_id"),
        ("[web.analytics]\nadapter = \"spy\"\n", "must be one of [builtin posthog ga4 none]"),
        (
            "[auth.sessions]\nsingle_per_use = true\n",
            "unknown key auth.sessions.single_per_use; did you mean auth.sessions.single_per_user?",
        ),
        ("[auth]\nsite_url = \"x\"\n", "unknown key auth.site_url"),
        ("[auth.email]\nsecurity_page = \"me\"\n", "auth.email.security_page: expected a URL"),
        ("[auth.password]\nbreach_check = true\n", "must be one of [off fail-open fail-closed]"),
        ("[auth.encryption]\ncurrent = \"k1\"\n", "auth.encryption.current: there is no key \"k1\""),
        (
            "[auth.email.templates]\nrecover = \"/x\"\n",
            "unknown key auth.email.templates.recover; did you mean auth.email.templates.recovery?",
        ),
        ("[auth.encryption]\nkeys = [\"no name\"]\n", "auth.encryption.keys: expected texts such as \"name:secret\""),
        ("[auth.encryption]\nkeys = [\"k:1\", \"k:2\"]\n", "auth.encryption.keys: there are two of the name \"k\""),
        ("[auth.email]\nname_servers = [\"dns.example\"]\n", "auth.email.name_servers: expected an IP address"),
        ("[auth.sms]\ntest_otp_valid_until = \"soon\"\n", "expected a time such as"),
        ("[auth.rate_limit]\nemails = \"many\"\n", "auth.rate_limit.emails: expected a number an hour"),
        ("[auth.rate_limit]\nemails = \"5/0s\"\n", "auth.rate_limit.emails: expected a number an hour"),
        ("[emulators]\ngoogle = \"perhaps\"\n", "expected true or false"),
    ];
    for (text, expected) in table {
        let error = settings(text).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn an_object_store_is_read_with_its_credentials() {
    let written = settings(
        "[storage.backend]\ntype = \"s3\"\nendpoint = \"https://s3.example.com\"\nregion = \"eu\"\nbucket = \"files\"\nprefix = \"app\"\n\
         access_key_id = \"id\"\nsecret_access_key = \"key\"\npart_size = \"16MiB\"\ntimeout = \"30s\"\n",
    );
    let store = written.unwrap().storage.backend.unwrap();
    assert_eq!((store.endpoint.as_deref(), store.region.as_str()), (Some("https://s3.example.com"), "eu"));
    assert_eq!((store.bucket.as_str(), store.prefix.as_str(), store.path_style), ("files", "app", true));
    assert_eq!(key_of(&store), ("id", "key", None));
    assert_eq!((store.part_size, store.timeout), (Some(16 << 20), Some(Duration::from_secs(30))));
    assert!(!format!("{store:?}").contains("\"key\""));

    let folder = Folder::with("supabase/portico.toml", "[storage.backend]\ntype = \"s3\"\nbucket = \"files\"\n");
    folder.put(
        "supabase/.env",
        "AWS_REGION=eu-west-1\nAWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=key\nAWS_SESSION_TOKEN=token\n",
    );
    let store = Settings::load(&folder.load()).unwrap().storage.backend.unwrap();
    assert_eq!((store.region.as_str(), store.path_style), ("eu-west-1", false));
    assert_eq!(key_of(&store), ("id", "key", Some("token")));

    assert!(settings("[storage.backend]\ntype = \"folder\"\n").unwrap().storage.backend.is_none());
    for (text, problem) in [
        ("bucket = \"x\"", "Missing required field in config: storage.backend.type"),
        ("type = \"s3\"\nregion = \"x\"", "Missing required field in config: storage.backend.bucket"),
        ("type = \"s3\"\nendpoint = \"minio:9000\"", "storage.backend.endpoint: expected the URL of a store"),
        ("type = \"s3\"\npart_size = \"1MiB\"", "storage.backend.part_size: expected a size from 5MiB"),
        ("type = \"s3\"\nacces_key_id = \"x\"", "did you mean storage.backend.access_key_id?"),
    ] {
        let error = settings(&format!("[storage.backend]\n{text}\n")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}

/// Returns the key of a store, with the token of its session.
fn key_of(store: &ObjectStoreSettings) -> (&str, &str, Option<&str>) {
    match &store.credentials {
        ObjectStoreCredentials::Key { access_key_id, secret_access_key, session_token } => {
            (access_key_id, secret_access_key.expose(), session_token.as_ref().map(Secret::expose))
        }
        ObjectStoreCredentials::Role(role) => panic!("{role:?}"),
    }
}

#[test]
fn a_role_is_the_one_that_the_platform_names() {
    let role = |variables: &str| {
        let folder = Folder::with(
            "supabase/portico.toml",
            "[storage.backend]\ntype = \"s3\"\nbucket = \"files\"\nregion = \"eu-west-1\"\ncredentials = \"role\"\n",
        );
        folder.put("supabase/.env", variables);
        match Settings::load(&folder.load()).unwrap().storage.backend.unwrap().credentials {
            ObjectStoreCredentials::Role(role) => role,
            ObjectStoreCredentials::Key { access_key_id, .. } => panic!("{access_key_id}"),
        }
    };
    // A key of the environment is not meant
    let instance = role("AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=key\n");
    assert!(matches!(instance, ObjectStoreRole::Instance { metadata_url } if metadata_url == "http://169.254.169.254"));
    let instance = role("AWS_EC2_METADATA_SERVICE_ENDPOINT=http://[fd00:ec2::254]/\nAWS_ROLE_ARN=arn:x\n");
    assert!(matches!(instance, ObjectStoreRole::Instance { metadata_url } if metadata_url == "http://[fd00:ec2::254]"));

    let container = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x\nAWS_CONTAINER_CREDENTIALS_FULL_URI=http://y\n";
    assert!(matches!(
        role(container),
        ObjectStoreRole::Container { url, token_file: None, token: None } if url == "http://169.254.170.2/v2/x"
    ));
    let container_variables = "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://169.254.170.23/v1/credentials\n\
                     AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/token\nAWS_CONTAINER_AUTHORIZATION_TOKEN=secret\n";
    let ObjectStoreRole::Container { url, token_file, token } = role(container_variables) else {
        panic!("another way")
    };
    assert_eq!((url.as_str(), token_file), ("http://169.254.170.23/v1/credentials", Some("/token".into())));
    assert!(token.is_some_and(|token| token.expose() == "secret"));

    // The token for the key is for no one else
    let container = |url: &str| {
        let folder = Folder::with(
            "supabase/portico.toml",
            "[storage.backend]\ntype = \"s3\"\nbucket = \"files\"\nregion = \"x\"\ncredentials = \"role\"\n",
        );
        folder.put("supabase/.env", &format!("AWS_CONTAINER_CREDENTIALS_FULL_URI={url}\n"));
        Settings::load(&folder.load()).map(drop).map_err(|error| error.to_string())
    };
    for url in ["https://keys.example.com/x", "http://127.0.0.1:9099/", "http://localhost/", "http://[fd00:ec2::23]/x"]
    {
        assert_eq!(container(url), Ok(()), "{url}");
    }
    for url in
        ["http://keys.example.com/x", "http://169.254.169.254/", "http://127.0.0.1.example.com/", "ftp://[::1]/", "x"]
    {
        let error = container(url).unwrap_err();
        assert!(error.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI: expected a URL with https"), "{url}: {error}");
    }

    let identity = format!("{container_variables}AWS_WEB_IDENTITY_TOKEN_FILE=/identity\nAWS_ROLE_ARN=arn:x\n");
    let ObjectStoreRole::WebIdentity { token_file, role_arn, session_name, sts_url } = role(&identity) else {
        panic!("another way")
    };
    assert_eq!((token_file, role_arn.as_str()), ("/identity".into(), "arn:x"));
    assert_eq!((session_name.as_str(), sts_url.as_str()), ("portico", "https://sts.eu-west-1.amazonaws.com"));

    let missing = settings("[storage.backend]\ntype = \"s3\"\nbucket = \"x\"\nregion = \"y\"\n").unwrap_err();
    assert!(missing.contains("storage.backend.access_key_id"), "{missing}");
    let unknown = settings("[storage.backend]\ntype = \"s3\"\ncredentials = \"roles\"\n").unwrap_err();
    assert!(unknown.contains("storage.backend.credentials"), "{unknown}");
}

#[test]
fn the_options_of_files_are_off_unless_they_are_named() {
    let written = |text: &str| {
        let storage = settings(text).unwrap().storage;
        (storage.sniff_mime_types, storage.negotiate_avif, storage.resumable_lifetime)
    };
    assert_eq!(written(""), (false, false, None));
    assert_eq!(written("[storage]\nsniff_mime_types = true\n"), (true, false, None));
    assert_eq!(written("[storage]\nnegotiate_avif = true\n"), (false, true, None));
    let hours = Some(Duration::from_secs(7200));
    assert_eq!(written("[storage]\nresumable_lifetime = \"2h\"\n"), (false, false, hours));
}

#[test]
fn the_rules_of_deletions_are_parsed() {
    let written = |text: &str| settings(text).map(|settings| settings.realtime).unwrap();
    let defaults = written("");
    assert_eq!((defaults.deletes_without_privilege, defaults.deletes_compared_whole), (false, false));
    let given = written("[realtime]\ndeletes_without_privilege = true\ndeletes_compared_whole = true\n");
    assert_eq!((given.deletes_without_privilege, given.deletes_compared_whole), (true, true));
}

#[test]
fn a_cluster_has_one_way() {
    let written = |text: &str| settings(text).map(|settings| settings.realtime);
    assert!(written("").unwrap().cluster.is_none());
    assert!(written("[realtime.cluster]\nnotify = false\n").unwrap().cluster.is_none());
    let notify = written("[realtime]\ndecisions_for = \"10s\"\n[realtime.cluster]\nnotify = true\n").unwrap();
    assert!(matches!(notify.cluster, Some(ClusterMode::Notify)));
    assert_eq!(notify.decisions_for, Duration::from_secs(10));
    let nats = written("[realtime.cluster]\nnats = \"tls://u:secret@nats.example.com\"\n").unwrap();
    assert!(matches!(&nats.cluster, Some(ClusterMode::Nats(url)) if url.expose() == "tls://u:secret@nats.example.com"));
    assert!(!format!("{nats:?}").contains("secret@"));
    for (text, problem) in [
        ("nats = \"10.0.0.5:4222\"", "realtime.cluster.nats: expected the URL of a NATS server"),
        ("nats = \"https://nats.example.com\"", "realtime.cluster.nats: expected the URL of a NATS server"),
        ("nats = \"nats://a\"\nnotify = true", "realtime.cluster.nats: expected either"),
        ("nat = \"nats://a\"", "did you mean realtime.cluster.nats?"),
    ] {
        let error = written(&format!("[realtime.cluster]\n{text}\n")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}
