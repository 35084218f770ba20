//! The report of a run: tables as Markdown, which can be pasted into `bench/README.md`.

/// The lines of the report.
#[derive(Default)]
pub struct Report {
    rows: Vec<Vec<String>>,
    tables: Vec<Table>,
}

struct Table {
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Report {
    /// Adds a line to the main table: the measurement, its value, the limit that it is compared
    /// with, and the ratio or the bar.
    pub fn row(&mut self, what: &str, value: String, limit: String, ratio: String) {
        println!("{what}: {value} | {limit} | {ratio}");
        self.rows.push(vec![what.to_owned(), value, limit, ratio]);
    }

    /// Adds a line to the table with this header, which is created if there is none.
    pub fn detail(&mut self, header: &'static [&'static str], row: Vec<String>) {
        println!("{}", row.join(" | "));
        match self.tables.iter_mut().find(|table| table.header == header) {
            Some(table) => table.rows.push(row),
            None => self.tables.push(Table { header, rows: vec![row] }),
        }
    }

    /// Returns all tables.
    pub fn render(&self) -> String {
        let mut text = table(&["Measured", "Portico", "Limit in the same run", "Ratio"], &self.rows);
        for more in &self.tables {
            text.push_str(&table(more.header, &more.rows));
        }
        text
    }
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("\n| {} |\n|{}\n", header.join(" | "), " --- |".repeat(header.len()));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// Returns the median of some numbers.
pub fn median(values: Vec<f64>) -> f64 {
    percentile(values, 50)
}

/// Returns the number below which `percent` of the numbers are.
pub fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((values.len() * percent / 100).min(last)).copied().unwrap_or(f64::NAN)
}
