use proptest::prelude::*;

use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn event(inbound: &Inbound) -> (&str, &str) {
    match &inbound.body {
        InboundBody::Event { event, payload } => (event, std::str::from_utf8(payload).unwrap()),
        InboundBody::UserBroadcast(_) => panic!("a broadcast"),
    }
}

fn text_of(frame: &Frame) -> &str {
    match frame {
        Frame::Text(bytes) => std::str::from_utf8(bytes).unwrap(),
        Frame::Binary(_) => panic!("binary"),
    }
}

#[test]
fn a_version_is_one_of_two_and_the_first_without_one() {
    assert_eq!(Version::parse(None), Some(Version::V1));
    assert_eq!(Version::parse(Some("1.0.0")), Some(Version::V1));
    assert_eq!(Version::parse(Some("1.0.7")), Some(Version::V1));
    assert_eq!(Version::parse(Some("2.0.0")), Some(Version::V2));
    for other in ["", "1", "2.0", "3.0.0", "2.1.0", "2.0.0.0", "x", "2.0.x", "-2.0.0"] {
        assert_eq!(Version::parse(Some(other)), None, "{other}");
    }
}

#[test]
fn messages_of_both_versions_have_the_same_content() {
    let object =
        bytes(r#"{"topic":"realtime:room","event":"phx_join","payload":{"config":{}},"ref":"1","join_ref":"1"}"#);
    let array = bytes(r#"["1","1","realtime:room","phx_join",{"config":{}}]"#);
    let first = Inbound::parse_text(Version::V1, &object).unwrap();
    assert_eq!(Some(&first), Inbound::parse_text(Version::V2, &array).as_ref());
    assert_eq!(event(&first), ("phx_join", r#"{"config":{}}"#));
    assert_eq!(first.reference.json(), "\"1\"");
}

#[test]
fn references_are_kept_as_they_were_sent() {
    let message = Inbound::parse_text(Version::V2, &bytes(r#"[null,"a\u00e9","t","e",1,"more",2]"#)).unwrap();
    assert!(message.join_ref.is_null());
    assert_eq!(message.reference.json(), r#""a\u00e9""#);
    let message =
        Inbound::parse_text(Version::V1, &bytes(r#"{"topic":"t","event":"e","payload":{},"ref":7}"#)).unwrap();
    assert_eq!(message.reference.json(), "7");
    assert!(message.join_ref.is_null());
}

#[test]
fn malformed_text_is_no_message() {
    for text in ["", "{}", "[]", "null", "[1,2,3,4]", r#"[null,null,1,"e",{}]"#, r#"["1","1","t","e",{}"#, "\"x\""] {
        assert_eq!(Inbound::parse_text(Version::V2, &bytes(text)), None, "{text}");
    }
    for text in [
        r#"{"topic":"t","event":"e","payload":{}}"#,
        r#"["1","1","t","e",{}]"#,
        r#"{"topic":"t","event":"e","ref":null}"#,
    ] {
        assert_eq!(Inbound::parse_text(Version::V1, &bytes(text)), None, "{text}");
    }
}

#[test]
fn a_payload_is_not_parsed_however_deep_it_is() {
    let deep = format!("[null,null,\"t\",\"e\",{}1{}]", "[".repeat(100_000), "]".repeat(100_000));
    let message = Inbound::parse_text(Version::V2, &bytes(&deep)).unwrap();
    assert_eq!(event(&message).1.len(), 200_001);
}

#[test]
fn a_broadcast_frame_is_parsed_and_forwarded_as_the_protocol_says() {
    let mut frame = vec![3, 1, 2, 13, 3, 0, 1];
    frame.extend_from_slice(b"810realtime:roomcur{\"x\":1}");
    let message = Inbound::parse_binary(&frame.into()).unwrap();
    assert_eq!(
        (message.join_ref.json(), message.reference.json(), &*message.topic),
        ("\"8\"", "\"10\"", "realtime:room")
    );
    let InboundBody::UserBroadcast(broadcast) = message.body else { panic!("an event") };
    assert_eq!(broadcast, UserBroadcast { event: "cur".into(), payload: UserPayload::Json(bytes("{\"x\":1}")) });

    let mut expected = vec![4, 13, 3, 0, 1];
    expected.extend_from_slice(b"realtime:roomcur{\"x\":1}");
    assert_eq!(encode_user_broadcast("realtime:room", &broadcast, ""), Some(Frame::Binary(expected.into())));
    assert_eq!(broadcast_payload(&broadcast, "").unwrap(), r#"{"event":"cur","payload":{"x":1},"type":"broadcast"}"#);
    let long = "x".repeat(256);
    assert_eq!(encode_user_broadcast(&long, &broadcast, ""), None);
    assert_eq!(encode_user_broadcast("t", &broadcast, &long), None);
}

#[test]
fn names_in_latin_1_are_read() {
    let mut frame = vec![3, 0, 0, 10, 1, 0, 0];
    frame.extend_from_slice(b"realtime:\xe9\xe8\x00\x01\x02");
    let message = Inbound::parse_binary(&frame.into()).unwrap();
    assert_eq!(&*message.topic, "realtime:é");
    let InboundBody::UserBroadcast(broadcast) = message.body else { panic!("an event") };
    assert_eq!((&*broadcast.event, broadcast.payload), ("è", UserPayload::Binary(Bytes::from_static(&[0, 1, 2]))));
}

#[test]
fn a_generic_push_in_binary_is_an_event() {
    let mut frame = vec![0, 1, 1, 1, 1];
    frame.extend_from_slice(b"12te{}");
    let message = Inbound::parse_binary(&frame.into()).unwrap();
    assert_eq!(event(&message), ("e", "{}"));
}

#[test]
fn malformed_binary_frames_are_no_messages() {
    let frames: [&[u8]; 7] = [
        b"",
        b"\x03",
        b"\x03\x01\x01\x01\x01\x00",
        b"\x03\xff\x00\x00\x00\x00\x01abc",
        b"\x03\x00\x00\x01\x01\x00\x01te{",
        b"\x03\x00\x00\x01\x01\x01\x00te1",
        b"\x04\x01\x01\x00\x01te{}",
    ];
    for frame in frames {
        assert_eq!(Inbound::parse_binary(&Bytes::from_static(frame)), None, "{frame:?}");
    }
}

#[test]
fn events_are_encoded_for_both_versions() {
    let join_ref = Reference(Some("\"3\"".into()));
    let head = EventHead { join_ref: &join_ref, reference: &Reference::NULL, topic: "realtime:a\"b", event: "system" };
    assert_eq!(text_of(&encode_event(Version::V2, head, b"{}")), r#"["3",null,"realtime:a\"b","system",{}]"#);
    let object = encode_event(Version::V1, head, b"{}");
    assert_eq!(text_of(&object), r#"{"ref":null,"topic":"realtime:a\"b","event":"system","payload":{}}"#);
}

/// Returns JSON text of any shape, with what a parser may trip over: escapes, surrogates, numbers
/// out of range, repeated keys.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        prop::sample::select(&["-0", "1e400", "0.1e-9", "18446744073709551616"][..]).prop_map(str::to_owned),
        any::<String>().prop_map(|text| json_string(&text)),
        prop::sample::select(&[r#""\ud800""#, r#""\u0000\/""#, r#""realtime:a""#, r#""phx_join""#][..])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let pair = (prop_oneof![any::<String>(), Just("ref".to_owned())], inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..6).prop_map(|values| format!("[{}]", values.join(" ,"))),
            proptest::collection::vec(pair, 0..6).prop_map(|pairs| {
                let pairs = pairs.iter().map(|(key, value)| format!("{} : {value}", json_string(key)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

/// Returns text frames of a version that are nearly right: elements of any shape, too few, too
/// many.
fn text_frames(version: Version) -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![any::<String>().prop_map(|text| json_string(&text)), json_text()];
    let elements = (json_text(), json_text(), name.clone(), name, json_text());
    (elements, proptest::collection::vec(json_text(), 0..2), 0_usize..7).prop_map(move |(elements, more, kept)| {
        let (join_ref, reference, topic, event, payload) = elements;
        let mut elements = vec![join_ref, reference, topic, event, payload];
        if version == Version::V1 {
            let names = ["join_ref", "ref", "topic", "event", "payload"];
            elements = names.iter().zip(elements).map(|(name, value)| format!("\"{name}\":{value}")).collect();
        }
        elements.extend(more.into_iter().filter(|_| version == Version::V2));
        elements.truncate(kept.max(3) + 1);
        match version {
            Version::V1 => format!("{{{}}}", elements.join(",")),
            Version::V2 => format!("[{}]", elements.join(",")),
        }
        .into_bytes()
    })
}

/// Returns binary frames whose lengths and names may fit each other.
fn binary_frames() -> impl Strategy<Value = Vec<u8>> {
    let name = proptest::collection::vec(any::<u8>(), 0..12);
    let names = proptest::collection::vec(name, 5);
    let payload = prop_oneof![json_text().prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..40)];
    (0_u8..5, names, json_text(), 0_u8..3, payload).prop_map(|(kind, names, metadata, encoding, payload)| {
        let mut names = names;
        names.truncate(if kind == 0 { 4 } else { 5 });
        if let Some(last) = names.get_mut(4) {
            *last = metadata.into_bytes();
            last.truncate(255);
        }
        let mut frame = vec![kind];
        frame.extend(names.iter().map(|name| name.len() as u8));
        if kind != 0 {
            frame.push(encoding);
        }
        names.iter().for_each(|name| frame.extend_from_slice(name));
        frame.extend_from_slice(&payload);
        frame
    })
}

/// Changes bytes of a frame, or cuts it.
fn damaged(mut frame: Vec<u8>, damage: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) -> Bytes {
    if !frame.is_empty() {
        damage.iter().for_each(|(at, byte)| {
            let at = at.index(frame.len());
            frame[at] = *byte;
        });
    }
    if let Some(cut) = cut {
        frame.truncate(cut.index(frame.len() + 1));
    }
    frame.into()
}

/// Checks that whatever was parsed can be sent to clients of both versions, as frames that they can
/// read.
fn check_sendable(message: &Inbound) {
    fn assert_json(text: &[u8]) {
        assert!(is_json(text), "{:?}", String::from_utf8_lossy(text));
    }
    assert!(message.names() <= MAX_NAMES);
    assert_json(message.join_ref.json().as_bytes());
    assert_json(message.reference.json().as_bytes());
    let (event, payload) = match &message.body {
        InboundBody::Event { event, payload } => (&**event, payload.clone()),
        InboundBody::UserBroadcast(broadcast) => {
            let binary = encode_user_broadcast(&message.topic, broadcast, "");
            let is_short = message.topic.len() <= 255 && broadcast.event.len() <= 255;
            assert_eq!(binary.is_some(), is_short);
            (&*broadcast.event, broadcast_payload(broadcast, "{}").unwrap_or_else(|| Bytes::from_static(b"{}")))
        }
    };
    assert_json(&payload);
    let (join_ref, reference) = (&message.join_ref, &message.reference);
    for version in [Version::V1, Version::V2] {
        let head = EventHead { join_ref, reference, topic: &message.topic, event };
        let Frame::Text(text) = encode_event(version, head, &payload) else { panic!("a binary frame") };
        assert_json(&text);
        let again = Inbound::parse_text(version, &text).unwrap();
        assert_eq!((&again.topic, &again.reference), (&message.topic, reference));
        assert_eq!(tests::event(&again), (event, std::str::from_utf8(&payload).unwrap()));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_fail(frame in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..5) {
        let mut frame = frame;
        let _ = Inbound::parse_text(Version::V1, &frame.clone().into());
        let _ = Inbound::parse_text(Version::V2, &frame.clone().into());
        if let Some(first) = frame.first_mut() {
            *first = kind;
        }
        let _ = Inbound::parse_binary(&frame.into());
    }

    #[test]
    fn a_text_frame_is_no_message_or_one_that_can_be_sent(
        frame in prop_oneof![text_frames(Version::V1), text_frames(Version::V2)],
        damage in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..3),
        cut in proptest::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let frame = damaged(frame, &damage, cut);
        for version in [Version::V1, Version::V2] {
            if let Some(message) = Inbound::parse_text(version, &frame) {
                check_sendable(&message);
            }
        }
    }

    #[test]
    fn a_binary_frame_is_no_message_or_one_that_can_be_sent(
        frame in binary_frames(),
        damage in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..3),
        cut in proptest::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        if let Some(message) = Inbound::parse_binary(&damaged(frame, &damage, cut)) {
            check_sendable(&message);
        }
    }

    #[test]
    fn an_encoded_frame_is_json_with_the_same_names(topic in ".{0,40}", event in ".{0,40}") {
        let head = EventHead { join_ref: &Reference::NULL, reference: &Reference::NULL, topic: &topic, event: &event };
        let Frame::Text(array) = encode_event(Version::V2, head, b"{}") else { unreachable!() };
        let parsed = Inbound::parse_text(Version::V2, &array).unwrap();
        prop_assert_eq!(&*parsed.topic, &topic);
        let Frame::Text(object) = encode_event(Version::V1, head, b"{}") else { unreachable!() };
        let parsed = Inbound::parse_text(Version::V1, &object).unwrap();
        prop_assert_eq!(tests::event(&parsed).0, &event);
    }

    #[test]
    fn a_broadcast_arrives_as_it_was_sent(
        topic in ".{0,60}", event in ".{0,60}", payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let broadcast = UserBroadcast { event: event.as_str().into(), payload: UserPayload::Binary(payload.into()) };
        if let Some(Frame::Binary(frame)) = encode_user_broadcast(&topic, &broadcast, "") {
            prop_assert_eq!(frame[0], 4);
            let (topic_end, event_end) = (5 + topic.len(), 5 + topic.len() + event.len());
            prop_assert_eq!(&frame[5..topic_end], topic.as_bytes());
            prop_assert_eq!(&frame[topic_end..event_end], event.as_bytes());
            prop_assert_eq!(&UserPayload::Binary(frame.slice(event_end..)), &broadcast.payload);
        } else {
            prop_assert!(topic.len() > 255 || event.len() > 255);
        }
    }
}
