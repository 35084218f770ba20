//! The slots of pages, which the server fills once when it starts.

const END: &str = "<!--/slot-->";

/// Returns a page with the content of its slots replaced. A slot without content in `slots` keeps
/// its own.
pub(super) fn filled(mut page: String, slots: &[(&str, String)]) -> String {
    for (name, content) in slots {
        let start = format!("<!--slot:{name}-->");
        let mut from = 0;
        while let Some(at) = page[from..].find(&start).map(|at| from + at) {
            let Some(length) = page[at..].find(END) else { break };
            page.replace_range(at..at + length + END.len(), content);
            from = at + content.len();
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_of_a_name_is_filled_and_others_keep_their_content() {
        let page = "<!--slot:a-->1<!--/slot--> <!--slot:b-->2<!--/slot--> <!--slot:a--><!--/slot-->".to_owned();
        let slots = [("a", "<!--slot:a-->x".to_owned()), ("c", "y".to_owned())];
        assert_eq!(filled(page, &slots), "<!--slot:a-->x <!--slot:b-->2<!--/slot--> <!--slot:a-->x");
        assert_eq!(filled("<!--slot:a-->open".to_owned(), &slots), "<!--slot:a-->open");
    }
}
