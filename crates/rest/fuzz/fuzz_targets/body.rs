//! Any body is parsed or rejected. The first byte selects its type, its purpose and whether
//! `columns` was given.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_rest::RestError;
use portico_rest::request::body::{BodyPurpose, Payload, parse};
use portico_rest::request::media::MediaType;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, body)) = input.split_first() else { return };
    let media_type = match choice % 5 {
        0 => MediaType::Json,
        1 => MediaType::Csv,
        2 => MediaType::Form,
        3 => MediaType::Text,
        _ => MediaType::Other("x/y".to_owned()),
    };
    let purpose = if choice & 64 == 0 { BodyPurpose::Rows } else { BodyPurpose::Arguments };
    let has_columns = choice & 128 != 0;
    match parse(purpose, &media_type, has_columns, Bytes::copy_from_slice(body)) {
        Ok(Payload::Json(payload)) => {
            let Some(known) = payload.known else { return assert!(has_columns) };
            assert!(known.keys.is_sorted());
            // The keys are also those of the text that is sent to PostgreSQL
            let again = parse(BodyPurpose::Rows, &MediaType::Json, false, payload.text.clone());
            let Ok(Payload::Json(again)) = again else { panic!("{again:?}") };
            assert_eq!((again.text, again.is_object), (payload.text, payload.is_object));
            let learned = again.known.unwrap_or_default();
            assert_eq!(learned.objects, known.objects);
            assert!(learned.keys == known.keys || known.objects == 0);
        }
        Ok(_) => assert_eq!(purpose, BodyPurpose::Arguments),
        Err(RestError::Body(message)) => assert!(!message.is_empty()),
        Err(other) => panic!("{other}"),
    }
});
