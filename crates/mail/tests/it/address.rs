use portico_mail::{Address, AddressError, Email, HeaderError, HeaderLine, Sender};
use proptest::prelude::*;

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

#[test]
fn usual_addresses_are_accepted() {
    for text in
        ["a@b.ch", "ann.smith+tag@mail.example.com", "o'hara@example.com", "x_y-z@localhost", "用户@example.com"]
    {
        assert_eq!(address(text).as_str(), text);
    }
    assert_eq!(address("  ann@example.com ").as_str(), "ann@example.com");
    assert_eq!(address("ann@bücher.example").domain(), "xn--bcher-kva.example");
}

#[test]
fn a_text_that_is_no_single_address_is_rejected() {
    let table = [
        ("", AddressError::Empty),
        ("   ", AddressError::Empty),
        ("ann", AddressError::Malformed),
        ("@example.com", AddressError::Malformed),
        ("ann@", AddressError::Malformed),
        ("ann@example.com,bob@example.com", AddressError::Malformed),
        ("ann@a@example.com", AddressError::Malformed),
        ("Ann <ann@example.com>", AddressError::Malformed),
        ("ann@[127.0.0.1]", AddressError::Malformed),
        ("ann@127.0.0.1", AddressError::Malformed),
        ("ann@-bad.example", AddressError::Malformed),
        ("ann@example..com", AddressError::Malformed),
        ("ann@example.com.", AddressError::Malformed),
        ("an n@example.com", AddressError::Malformed),
        ("\"ann\"@example.com", AddressError::Malformed),
        ("ann@example.com\r\nBcc: eve@example.com", AddressError::Invisible),
        ("ann@example.com\n", AddressError::Invisible),
        ("ann\0@example.com", AddressError::Invisible),
        ("ann\u{200b}@example.com", AddressError::Invisible),
        ("ann\u{202e}@example.com", AddressError::Invisible),
        ("ann\u{2028}@example.com", AddressError::Invisible),
    ];
    for (text, expected) in table {
        assert_eq!(Address::parse(text).unwrap_err(), expected, "{text:?}");
    }
    let long = |name: usize, domain: usize| format!("{}@{}.ch", "a".repeat(name), "b.".repeat(domain / 2) + "b");
    assert!(Address::parse(&long(64, 180)).is_ok());
    assert_eq!(Address::parse(&long(65, 10)).unwrap_err(), AddressError::TooLong);
    assert_eq!(Address::parse(&long(64, 200)).unwrap_err(), AddressError::TooLong);
    assert_eq!(Address::parse(&"a".repeat(10_000_000)).unwrap_err(), AddressError::TooLong);
}

#[test]
fn a_header_cannot_hold_a_second_header() {
    assert_eq!(HeaderLine::new("a\r\nBcc: b"), Err(HeaderError::ControlCharacter));
    assert_eq!(HeaderLine::new("a\u{2028}b"), Err(HeaderError::ControlCharacter));
    assert_eq!(HeaderLine::new("a".repeat(999)), Err(HeaderError::TooLong));
    assert_eq!(HeaderLine::flatten(" a\r\n\tBcc: b\0 ").as_str(), "a Bcc: b");
    assert!(HeaderLine::flatten(&"ü".repeat(1_000)).as_str().len() <= 998);

    let email = || Email::new(Sender::new("x", address("a@b.ch")), address("c@d.ch"), HeaderLine::flatten("s"), "");
    assert!(email().with_header("X-Tag", "a b").is_ok());
    for name in ["Bcc", "to", "Content-Type", "X Y", "X:Y", "", "Received", "X\r\nBcc"] {
        assert!(matches!(email().with_header(name, "v"), Err(HeaderError::Name(_))), "{name:?}");
    }
    assert_eq!(email().with_header("X-Tag", "a\nb").unwrap_err(), HeaderError::ControlCharacter);
}

proptest! {
    #[test]
    fn an_address_never_holds_a_control_character(text in "\\PC{0,20}(@|\\r|\\n|\\PC)\\PC{0,20}") {
        if let Ok(address) = Address::parse(&text) {
            prop_assert!(!address.as_str().chars().any(char::is_control));
            prop_assert_eq!(address.as_str().matches('@').count(), 1);
            prop_assert_eq!(Address::parse(address.as_str()).unwrap(), address);
        }
    }

    #[test]
    fn a_flattened_line_is_a_line(text in ".{0,200}[\\r\\n\\x00]{0,3}.{0,100}") {
        let line = HeaderLine::flatten(&text);
        prop_assert_eq!(HeaderLine::new(line.as_str()), Ok(line));
    }
}
