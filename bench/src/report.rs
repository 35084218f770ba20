//! The table that a run prints, as Markdown, so that it can be pasted into `bench/README.md`.

/// Lines of results.
#[derive(Default)]
pub struct Report {
    rows: Vec<[String; 4]>,
}

impl Report {
    /// Adds a line: what was measured, its value, the limit it is compared with, and the ratio or the bar.
    pub fn row(&mut self, what: &str, value: String, limit: String, ratio: String) {
        println!("{what}: {value} | {limit} | {ratio}");
        self.rows.push([what.to_owned(), value, limit, ratio]);
    }

    /// The whole table.
    pub fn render(&self) -> String {
        let mut text = String::from("\n| Measured | Portico | Limit in the same run | Ratio |\n| --- | --- | --- | --- |\n");
        for row in &self.rows {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        text
    }
}

/// The middle of some numbers.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
