//! `config.toml`: defaults, types, env(), overrides, unknown keys, remotes.

use std::time::Duration;

use portico_project::{
    CaptchaProviderName, ConfiguredIssuer, EdgePolicy, PasswordRequirements, Project, SmsProvider, WarningKind,
};

use crate::folder::Folder;

fn warnings(project: &Project) -> Vec<String> {
    project.warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_folder_has_every_default() {
    let folder = Folder::new();
    let project = folder.load();
    let config = project.config();
    assert_eq!(config.api.port, 54321);
    assert_eq!(config.api.schemas, ["public", "graphql_public"]);
    assert_eq!(config.api.extra_search_path, ["public", "extensions"]);
    assert_eq!(config.api.max_rows, 1000);
    assert_eq!(config.api.external_url, "http://127.0.0.1:54321");
    assert_eq!(config.api.auto_expose_new_tables, None);
    assert_eq!(config.db.port, 54322);
    assert_eq!(config.db.major_version, 17);
    assert_eq!(config.db.seed.sql_paths, ["./seed.sql"]);
    assert_eq!(config.inbucket.port, 54324);
    assert_eq!(config.inbucket.admin_email, "admin@email.com");
    assert_eq!(config.studio.port, 54323);
    assert_eq!(config.storage.file_size_limit, 52_428_800);
    let auth = &config.auth;
    assert_eq!(auth.site_url, "http://127.0.0.1:3000");
    assert_eq!(auth.external_url, "http://127.0.0.1:54321/auth/v1");
    assert_eq!(auth.jwt_issuer, auth.external_url);
    assert_eq!(auth.additional_redirect_urls, ["https://127.0.0.1:3000"]);
    assert_eq!((auth.jwt_expiry, auth.refresh_token_reuse_interval, auth.minimum_password_length), (3600, 10, 6));
    assert!(auth.enable_signup && auth.enable_refresh_token_rotation && !auth.enable_anonymous_sign_ins);
    assert_eq!(auth.password_requirements, PasswordRequirements::None);
    assert!(auth.email.enable_signup && !auth.email.enable_confirmations && auth.email.double_confirm_changes);
    assert_eq!(auth.email.max_frequency, Duration::from_secs(1));
    assert_eq!((auth.email.otp_length, auth.email.otp_expiry), (6, 3600));
    assert!(auth.email.smtp.is_none() && auth.captcha.is_none() && auth.external.is_empty());
    assert_eq!((auth.rate_limit.email_sent, auth.rate_limit.token_refresh), (2, 150));
    assert_eq!(auth.mfa.max_enrolled_factors, 10);
    assert!(!auth.mfa.totp.enroll_enabled);
    assert_eq!(auth.sms.max_frequency, Duration::from_secs(5));
    assert_eq!(auth.jwt_secret_or_development().expose(), "super-secret-jwt-token-with-at-least-32-characters-long");
    assert_eq!(config.edge_runtime.policy, EdgePolicy::PerWorker);
    assert_eq!(auth.oauth_server.authorization_url_path, "/oauth/consent");
    assert_eq!(warnings(&project), Vec::<String>::new());
}

#[test]
fn an_unknown_key_is_a_warning_with_its_position_and_the_nearest_name() {
    let project = Folder::config(
        "project_id = \"x\"\n[auth]\nsite_ulr = \"http://localhost\"\n[auth.email]\nweather = 1\n[surprise]\na = 1\n",
    )
    .load();
    assert_eq!(
        warnings(&project),
        [
            "supabase/config.toml:3: unknown key auth.site_ulr has no effect; did you mean auth.site_url?",
            "supabase/config.toml:5: unknown key auth.email.weather has no effect",
            "supabase/config.toml:6: unknown key surprise has no effect",
        ]
    );
    assert!(project.warnings().iter().all(|warning| warning.kind == WarningKind::UnknownKey));
}

#[test]
fn wrong_types_fail_with_file_line_and_key_all_at_once() {
    let error = Folder::config(
        "[api]\nport = \"gate\"\nschemas = 5\nenabled = \"yes\"\n[auth]\njwt_expiry = -1\nsite_url = true\n\
         password_requirements = \"long\"\n[auth.email]\nmax_frequency = \"soon\"\n[db]\nport = 70000\nseed = 1\n\
         [storage]\nfile_size_limit = \"big\"\n",
    )
    .error();
    assert_eq!(
        error,
        "failed to parse config:\n  \
         supabase/config.toml:2: api.port: expected a whole number from 0 to 65535, found \"gate\"\n  \
         supabase/config.toml:3: api.schemas: expected a list of texts, found 5\n  \
         supabase/config.toml:4: api.enabled: expected true or false, found \"yes\"\n  \
         supabase/config.toml:6: auth.jwt_expiry: expected a whole number that is not negative, found -1\n  \
         supabase/config.toml:7: auth.site_url: expected text, found true or false\n  \
         supabase/config.toml:8: auth.password_requirements: must be one of [ letters_digits lower_upper_letters_digits \
         lower_upper_letters_digits_symbols], found \"long\"\n  \
         supabase/config.toml:10: auth.email.max_frequency: expected a duration such as \"90s\" or \"1h30m\", found \"soon\"\n  \
         supabase/config.toml:12: db.port: expected a whole number from 0 to 65535, found 70000\n  \
         supabase/config.toml:13: db.seed: expected a table, found a whole number\n  \
         supabase/config.toml:15: storage.file_size_limit: expected a size such as \"50MiB\" or a number of bytes, found \"big\""
    );
}

#[test]
fn a_syntax_error_is_reported_with_its_line() {
    let error = Folder::config("[api]\nport = \n").error();
    assert!(error.starts_with("failed to parse config: supabase/config.toml:2:"), "{error}");
}

#[test]
fn keys_are_case_insensitive() {
    let project = Folder::config(
        "[API]\nPort = 1234\n[Functions.Send-Mail]\nverify_jwt = false\n[edge_runtime.secrets]\nApi_Key = \"k\"\n",
    )
    .load();
    assert_eq!(project.config().api.port, 1234);
    assert!(!project.config().functions["send-mail"].verify_jwt);
    assert_eq!(project.config().edge_runtime.secrets["API_KEY"].expose(), "k");
}

#[test]
fn env_is_replaced_for_every_type() {
    let folder = Folder::config(
        "[api]\nport = \"env(PORT)\"\nschemas = \"env(SCHEMAS)\"\n[auth]\nenable_signup = \"env(SIGNUP)\"\n\
         additional_redirect_urls = [\"env(ONE)\", \"http://b\", \"x env(ONE)\"]\njwt_secret = \"env(SECRET)\"\n\
         [auth.external.google]\nenabled = true\nclient_id = \"env(GOOGLE_ID)\"\n",
    );
    let variables = [
        ("PORT", "8080"),
        ("SCHEMAS", "public, app"),
        ("SIGNUP", "false"),
        ("ONE", "http://a"),
        ("SECRET", "0123456789abcdef"),
        ("GOOGLE_ID", "id.example"),
    ];
    let project = folder.try_load(&variables).unwrap();
    let config = project.config();
    assert_eq!(config.api.port, 8080);
    assert_eq!(config.api.schemas, ["public", "app"]);
    assert!(!config.auth.enable_signup);
    assert_eq!(config.auth.additional_redirect_urls, ["http://a", "http://b", "x env(ONE)"]);
    assert_eq!(config.auth.jwt_secret_or_development().expose(), "0123456789abcdef");
    assert_eq!(config.auth.external["google"].client_id.as_deref(), Some("id.example"));
    assert_eq!(config.auth.external["google"].redirect_uri, "http://127.0.0.1:8080/auth/v1/callback");
    assert_eq!(warnings(&project), Vec::<String>::new());
}

#[test]
fn a_wrong_value_of_a_variable_is_never_shown() {
    let folder = Folder::config("[api]\nport = \"env(PORT)\"\n");
    let error = folder.try_load(&[("PORT", "s3cret")]).unwrap_err().to_string();
    assert!(error.contains("supabase/config.toml:2: api.port:") && error.contains("the value of PORT"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn an_unset_variable_counts_as_absent_and_is_named() {
    let project = Folder::config(
        "[auth]\nsite_url = \"env(SITE)\"\n[auth.external.github]\nenabled = true\nclient_id = \"env(GITHUB_ID)\"\n\
         secret = \"env(GITHUB_SECRET)\"\n[auth.external.apple]\nenabled = false\nsecret = \"env(APPLE_SECRET)\"\n\
         [studio]\nopenai_api_key = \"env(OPENAI_API_KEY)\"\n",
    )
    .load();
    assert_eq!(project.config().auth.site_url, "http://127.0.0.1:3000");
    assert_eq!(project.config().auth.external["github"].client_id, None);
    let expected = [
        "SITE (auth.site_url",
        "GITHUB_ID (auth.external.github.client_id",
        "GITHUB_SECRET (auth.external.github.secret",
    ];
    let found = warnings(&project);
    assert_eq!(found.len(), 3, "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(&format!("environment variable is unset: {expected}")), "{found}");
    }
}

#[test]
fn the_environment_overrides_every_key() {
    let folder = Folder::config("[api]\nport = 1\n[auth.external.google]\nenabled = false\nclient_id = \"a\"\n");
    let variables = [
        ("SUPABASE_API_PORT", "54421"),
        ("SUPABASE_AUTH_SITE_URL", "http://localhost:5173"),
        ("SUPABASE_AUTH_EMAIL_ENABLE_CONFIRMATIONS", "true"),
        ("SUPABASE_AUTH_EXTERNAL_GOOGLE_ENABLED", "true"),
        ("SUPABASE_AUTH_EXTERNAL_GITHUB_ENABLED", "true"),
        ("SUPABASE_PROJECT_ID", ""),
        ("SUPABASE_SERVICES_HOSTNAME", "dev.example"),
    ];
    let project = folder.try_load(&variables).unwrap();
    assert_eq!(project.config().api.port, 54421);
    assert_eq!(project.config().api.external_url, "http://dev.example:54421");
    assert_eq!(project.config().auth.site_url, "http://localhost:5173");
    assert!(project.config().auth.email.enable_confirmations);
    assert!(project.config().auth.external["google"].enabled);
    assert!(!project.config().auth.external.contains_key("github"));
    let error = folder.try_load(&[("SUPABASE_DB_PORT", "many")]).unwrap_err().to_string();
    assert!(error.contains("db.port: expected") && error.contains("the value of SUPABASE_DB_PORT"), "{error}");
}

#[test]
fn a_required_field_is_missed_only_if_its_section_is_enabled() {
    let error = Folder::config(
        "[auth.external.github]\nenabled = true\n[auth.external.google]\nenabled = true\nclient_id = \"x\"\n\
         [auth.email.smtp]\nhost = \"mail.example\"\n[auth.captcha]\nenabled = true\n[auth.hook.send_sms]\nenabled = true\n\
         [auth.sms.twilio]\nenabled = true\naccount_sid = \"a\"\n[auth.passkey]\nenabled = true\n[auth.webauthn]\nrp_display_name = \"Acme\"\n",
    )
    .error();
    for key in [
        "auth.external.github.client_id",
        "auth.external.github.secret",
        "auth.email.smtp.port",
        "auth.email.smtp.pass",
        "auth.email.smtp.admin_email",
        "auth.captcha.provider",
        "auth.captcha.secret",
        "auth.hook.send_sms.uri",
        "auth.sms.twilio.auth_token",
        "auth.webauthn.rp_id",
    ] {
        assert!(error.contains(&format!("Missing required field in config: {key}\n")), "{key} in {error}");
    }
    assert!(!error.contains("google"), "{error}");
    // Nothing is missed in a section that is off
    Folder::config("[auth]\nenabled = false\n[auth.external.github]\nenabled = true\n[auth.captcha]\nenabled = true\n")
        .load();
}

#[test]
fn a_value_outside_its_range_is_rejected() {
    let table = [
        ("[auth]\njwt_secret = \"short\"", "Invalid config for auth.jwt_secret. Must be at least 16 characters"),
        ("[auth.mfa.totp]\nenroll_enabled = true", "auth.mfa.totp.enroll_enabled requires verify_enabled"),
        ("[auth.hook.send_email]\nenabled = true\nuri = \"ftp://x\"", "should be a HTTP, HTTPS, or pg-functions URI"),
        (
            "[auth.hook.send_email]\nenabled = true\nuri = \"https://x\"\nsecrets = \"v1,whsec_abc\"",
            "auth.hook.send_email.secrets must be formatted as",
        ),
        (
            "[auth.hook.send_email]\nenabled = true\nuri = \"pg-functions://postgres/public/f\"\nsecrets = \"x\"",
            "is unsupported for pg-functions URI",
        ),
        ("[auth.email.template.invite]\ncontent = \"x\"", "please use content_path instead"),
        (
            "[auth.email.template.invite]\ncontent_path = \"./nowhere.html\"",
            "Invalid config for auth.email.template.invite.content_path",
        ),
        ("[db]\nmajor_version = 11", "Failed reading config: Invalid db.major_version: 11."),
        ("[edge_runtime]\ndeno_version = 3", "Failed reading config: Invalid edge_runtime.deno_version: 3."),
        ("[functions]\nverify_jwt = true", "Invalid functions config format."),
        ("[functions.\"1st\"]\nverify_jwt = true", "Invalid Function name: 1st."),
        ("[storage.buckets.\"a/b\"]\npublic = true", "Invalid Bucket name: a/b."),
        ("[experimental.webhooks]\nenabled = false", "Webhooks cannot be deactivated."),
        (
            "[auth.third_party.firebase]\nenabled = true\nproject_id = \"p\"\n[auth.third_party.auth0]\nenabled = true\ntenant = \"t\"",
            "Only one third_party provider allowed",
        ),
        (
            "[auth.third_party.firebase]\nenabled = true\n[auth.third_party.auth0]\nenabled = true\ntenant = \"t\"",
            "Only one third_party provider allowed",
        ),
        ("[auth.third_party.clerk]\nenabled = true", "auth.third_party.clerk is enabled but without a domain."),
        (
            "[auth.third_party.firebase]\nenabled = true\nproject_id = \"\"",
            "auth.third_party.firebase is enabled but without a project_id.",
        ),
        (
            "[auth.third_party]\nworkos = { enabled = true, issuer_url = \"\" }",
            "auth.third_party.workos is enabled but without a issuer_url.",
        ),
        (
            "[auth.third_party.clerk]\nenabled = true\ndomain = \"clerk.Example.com\"",
            "Check https://clerk.com/setup/supabase on how to find the correct value.",
        ),
        ("[remotes.a]\nproject_id = \"short\"", "Must be like: abcdefghijklmnopqrst"),
        (
            "[auth]\njwt_secret = \"encrypted:AAAA\"",
            "auth.jwt_secret: failed to decrypt the value: missing private key",
        ),
    ];
    for (text, expected) in table {
        let error = Folder::config(text).error();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_third_party_is_known_by_its_names() {
    for (text, url, other_names) in [
        (
            "[auth.third_party.workos]\nenabled = true\nissuer_url = \"https://api.workos.com/user_management/client_1\"",
            "https://api.workos.com/user_management/client_1",
            vec!["https://api.workos.com".to_owned()],
        ),
        (
            "[auth.third_party]\nclerk = { enabled = true, domain = \"a.b.clerk.accounts.dev\" }",
            "https://a.b.clerk.accounts.dev",
            vec![],
        ),
    ] {
        let project = Folder::config(text).load();
        let issuer = project.config().auth.third_party.issuer.clone().expect(text);
        assert_eq!((issuer.url.as_str(), issuer.other_names), (url, other_names));
    }
    let unset = "[auth.third_party]\nclerk = { enabled = true, domain = \"env(NO_SUCH_VARIABLE)\" }";
    let project = Folder::config(unset).load();
    assert_eq!(project.config().auth.third_party.issuer, None);
    assert_eq!(project.warnings()[0].kind, WarningKind::UnsetVariable);
}

#[test]
fn every_section_is_parsed() {
    let folder = Folder::config(
        "[auth]\npassword_requirements = \"letters_digits\"\n[auth.captcha]\nenabled = true\nprovider = \"turnstile\"\nsecret = \"s\"\n\
         [auth.sms]\nenable_signup = true\n[auth.sms.test_otp]\n15551230000 = \"123456\"\n\
         [auth.sms.vonage]\nenabled = true\nfrom = \"me\"\napi_key = \"k\"\napi_secret = \"s\"\n\
         [auth.sessions]\ntimebox = \"24h\"\ninactivity_timeout = \"0s\"\n\
         [auth.email.template.invite]\nsubject = \"Hi\"\ncontent_path = \"./supabase/templates/invite.html\"\n\
         [auth.email.template.recovery]\ncontent_path = \"https://texts.example.com/recovery.html\"\n\
         [auth.email.notification.password_changed]\nenabled = true\ncontent_path = \"./templates/changed.html\"\n\
         [auth.email.notification.passkey_added]\nenabled = true\n[auth.email.notification.recovery_code_used]\nenabled = false\n\
         [auth.email.notification.recovery_codes_created]\nenabled = true\n\
         [auth.third_party.auth0]\nenabled = true\ntenant = \"t\"\ntenant_region = \"eu\"\n\
         [auth.hook.custom_access_token]\nenabled = true\nuri = \"pg-functions://postgres/public/hook\"\n\
         [auth.external.linkedin]\nenabled = true\nclient_id = \"a\"\nsecret = \"b\"\n\
         [db.settings]\nmax_connections = 50\nwork_mem = \"8MB\"\n[db.vault]\nApi = \"v\"\n\
         [storage.buckets.Images]\npublic = true\nfile_size_limit = \"5MB\"\nobjects_path = \"./images\"\n\
         [functions.hello]\nentrypoint = \"./functions/hello/main.ts\"\n",
    )
    .write("supabase/templates/invite.html", "x")
    .write("supabase/templates/changed.html", "x");
    let project = folder.load();
    let config = project.config();
    assert_eq!(config.auth.password_requirements, PasswordRequirements::LettersDigits);
    assert_eq!(config.auth.captcha.as_ref().map(|captcha| captcha.provider), Some(CaptchaProviderName::Turnstile));
    assert_eq!(config.auth.sms.test_otp["15551230000"], "123456");
    assert!(matches!(&config.auth.sms.provider, Some(SmsProvider::Vonage { from, .. }) if from == "me"));
    assert_eq!(config.auth.sessions.timebox, Some(Duration::from_secs(86_400)));
    assert_eq!(config.auth.sessions.inactivity_timeout, None);
    let invite = &config.auth.email.template["invite"];
    assert_eq!(invite.content_path, Some(project.root().join("supabase/templates/invite.html")));
    let recovery = &project.config().auth.email.template["recovery"];
    assert_eq!(recovery.content_url.as_deref(), Some("https://texts.example.com/recovery.html"));
    assert_eq!(recovery.content_path, None);
    assert!(config.auth.email.notification["password_changed"].enabled);
    assert!(config.auth.email.notification["passkey_added"].enabled);
    assert!(!config.auth.email.notification["recovery_code_used"].enabled);
    assert!(config.auth.email.notification["recovery_codes_created"].enabled);
    let auth0 = ConfiguredIssuer {
        provider: "auth0".into(),
        url: "https://t.eu.auth0.com".into(),
        other_names: Vec::new(),
        audience: None,
    };
    assert_eq!(config.auth.third_party.issuer, Some(auth0));
    assert_eq!(config.auth.hook["custom_access_token"].uri, "pg-functions://postgres/public/hook");
    assert!(!config.auth.external.contains_key("linkedin"));
    assert_eq!(config.db.settings.parameters["max_connections"], "50");
    assert_eq!(config.db.vault["api"].expose(), "v");
    let images = &config.storage.buckets["images"];
    assert_eq!((images.public, images.file_size_limit), (Some(true), 5_242_880));
    assert_eq!(images.objects_path, Some(project.supabase_dir().join("images")));
    assert_eq!(config.functions["hello"].entrypoint, Some(project.supabase_dir().join("functions/hello/main.ts")));
    let found = warnings(&project);
    assert!(found.len() == 1 && found[0].contains("disabling deprecated \"linkedin\" provider"), "{found:?}");
    assert!(!format!("{config:?}").contains("api_secret: Secret(\"s\")"));
}

#[test]
fn older_and_newer_templates_parse_without_a_warning() {
    let project = Folder::config(
        "[inbucket]\nenabled = true\nport = 54324\n[local_smtp]\nenabled = true\nport = 54999\n\
         [edge_runtime]\npolicy = \"oneshot\"\n[auth]\nenable_refresh_token_rotation = true\n\
         [auth.external.slack]\nenabled = false\nclient_id = \"\"\nsecret = \"env(SLACK_SECRET)\"\n\
         [analytics]\nenabled = false\nport = 54327\nvector_port = 54328\nbackend = \"postgres\"\n\
         [experimental]\norioledb_version = \"\"\ns3_host = \"env(S3_HOST)\"\n\
         [storage.analytics]\nenabled = false\nmax_tables = 10\n[storage.vector]\nenabled = false\nmax_buckets = 10\n",
    )
    .load();
    assert_eq!(warnings(&project), Vec::<String>::new());
    assert_eq!(project.config().inbucket.port, 54999);
}

#[test]
fn a_remote_has_no_effect_until_it_is_chosen() {
    let folder = Folder::config(
        "[auth]\nsite_url = \"http://local\"\n[remotes.staging]\nproject_id = \"abcdefghijklmnopqrst\"\n\
         [remotes.staging.auth]\nsite_url = \"https://staging\"\nsit_url = \"typo\"\n",
    );
    let project = folder.load();
    assert_eq!(project.config().auth.site_url, "http://local");
    assert!(project.config().db.seed.enabled);
    let found = warnings(&project);
    assert!(found.len() == 1 && found[0].contains("config.toml:7: unknown key auth.sit_url"), "{found:?}");

    for chosen in ["staging", "abcdefghijklmnopqrst"] {
        let mut options = folder.options(&[("SUPABASE_AUTH_SITE_URL", "http://from-env")]);
        options.remote = Some(chosen.to_owned());
        let project = Project::load(options).unwrap();
        assert_eq!(project.config().auth.site_url, "https://staging");
        assert!(!project.config().db.seed.enabled);
        assert!(warnings(&project).contains(&"Loading config override: [remotes.staging]".to_owned()));
    }
    let twice =
        "[remotes.a]\nproject_id = \"abcdefghijklmnopqrst\"\n[remotes.b]\nproject_id = \"abcdefghijklmnopqrst\"\n";
    assert!(Folder::config(twice).error().contains("duplicate project_id for [remotes.b] and [remotes.a]"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Any kind of value at any position is read or rejected, without a panic.
    #[test]
    fn no_value_makes_loading_panic(
        places in proptest::collection::vec(
            (
                proptest::sample::select(vec![
                    "api", "api.port", "api.tls", "db", "db.seed.sql_paths", "db.settings.work_mem", "db.vault.x", "auth",
                    "auth.email.template", "auth.email.template.invite", "auth.email.smtp", "auth.external",
                    "auth.external.google", "auth.hook.send_sms", "auth.sms.test_otp", "auth.mfa.phone", "auth.third_party",
                    "functions", "functions.a.env", "storage.buckets", "storage.buckets.b", "remotes", "remotes.r",
                    "experimental.inspect.rules", "edge_runtime.secrets", "auth.sessions.timebox", "inbucket", "project_id",
                ]),
                proptest::sample::select(vec![
                    "1", "-1", "1.5", "true", "\"\"", "\"text\"", "\"env(NAME)\"", "\"env(\"", "[]", "[1, \"a\"]", "{}",
                    "{ enabled = true }", "{ enabled = \"env(NAME)\", uri = \"http://x\" }", "[{}]", "1979-05-27",
                    "99999999999", "\"encrypted:AAAA\"", "{ project_id = \"abcdefghijklmnopqrst\", api = 1 }",
                ]),
            ),
            1..4,
        )
    ) {
        let text: String = places.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let _ = Folder::config(&text).try_load(&[("NAME", "value")]).map_err(|error| error.to_string());
    }
}

#[test]
fn an_encrypted_secret_is_decrypted_with_the_key_of_the_environment() {
    // Made with `eciesjs`, the library of the format.
    let message = "BDx/baj+Dv18IwTRvnYIT+59frxgXh3vzCeguwLlmjdqyQ0GmjETXE7blr7s3aV9LjMs5+AN8BMODVKEO2rD/nuiBoBfeS8XesDj+MIulfDnPpFRmuZxOdHM+hNBHCDPBPHx0XWFfd7p5q9Yxal92fpv+A==";
    let folder = Folder::config(&format!("[auth]\njwt_secret = \"encrypted:{message}\"\n"));
    let key = "1f".repeat(32);
    let project = folder.try_load(&[("DOTENV_PRIVATE_KEY_DEV", &key)]).unwrap();
    assert_eq!(project.config().auth.jwt_secret_or_development().expose(), "sesame öffne dich");
    assert!(!format!("{:?}", project.config()).contains("sesame"));
}
