//! A table without lines, like those of `kubectl`. Each row is one line.

use crate::views::viewer::{shorten, shorten_end};

/// Blanks after each column but the last.
const GAP: usize = 2;
/// The minimum width, in columns, at which the last cell of a row can be read.
const LEAST_LAST: usize = 20;
/// The fewest columns to which a name is shortened.
const LEAST_NAME: usize = 9;

/// The form of a table in terminals of different widths.
pub(crate) struct Form {
    pub head: &'static [&'static str],
    /// The column with names of Nodes, if the layouts may write them without their domain.
    pub node: Option<usize>,
    /// The columns with names, which are shortened in the middle in this order if the last layout is too wide.
    pub names: &'static [usize],
    /// The layouts, from the widest to the narrowest. Each says whether names of Nodes are written without their domain, and which columns
    /// are left out. The table takes the first layout for which the terminal is wide enough, else the last one.
    pub layouts: &'static [(bool, &'static [usize])],
}

/// A table that is laid out: the number of each column, and the rows.
type Layout = (Vec<usize>, Vec<Vec<String>>);

impl Form {
    /// Draws the table: its head, and one line for each row. In a terminal with `width` columns, columns are left out, names are shortened
    /// in the middle, and the last cell is cut. Without a terminal everything is written. No rows give no lines.
    pub(crate) fn draw(&self, rows: &[Vec<String>], width: Option<u16>) -> Vec<String> {
        if rows.is_empty() {
            return Vec::new();
        }
        let columns = width.map_or(usize::MAX, usize::from);
        let (shown, rows) = self.choose(rows, columns);
        let head = self.heads(&shown);
        let widths: Vec<usize> = (0..head.len())
            .map(|index| {
                let cells = rows.iter().map(|row| row[index].chars().count());
                cells.max().unwrap_or(0).max(head[index].chars().count())
            })
            .collect();
        let head = head.iter().map(|title| title.to_uppercase()).collect();
        std::iter::once(head)
            .chain(rows)
            .map(|row: Vec<String>| draw_row(&row, &widths, columns))
            .collect()
    }

    /// Lists the numbers of the rows whose last cell the terminal has no room for.
    pub(crate) fn list_cut(&self, rows: &[Vec<String>], width: Option<u16>) -> Vec<usize> {
        let lines = self.draw(rows, width).into_iter().skip(1);
        let rows = rows.iter().zip(lines).enumerate();
        let is_cut =
            |row: &[String], line: &str| row.last().is_some_and(|cell| !line.ends_with(cell.trim_end()));
        rows.filter(|(_, (row, line))| is_cut(row, line))
            .map(|(number, _)| number)
            .collect()
    }

    /// Whether the table has room for the column `index`.
    pub(crate) fn shows(&self, index: usize, rows: &[Vec<String>], width: Option<u16>) -> bool {
        let (shown, _) = self.choose(rows, width.map_or(usize::MAX, usize::from));
        shown.contains(&index)
    }

    fn choose(&self, rows: &[Vec<String>], columns: usize) -> Layout {
        let mut narrowest = None;
        for (is_short, left_out) in self.layouts {
            let layout = self.lay_out(rows, *is_short, left_out);
            let others = width_of_others(&self.heads(&layout.0), &layout.1);
            if others.saturating_add(LEAST_LAST) <= columns {
                return layout;
            }
            narrowest = Some(layout);
        }
        let layout = narrowest.unwrap_or_else(|| self.lay_out(rows, false, &[]));
        self.narrow(layout, columns)
    }

    fn heads(&self, shown: &[usize]) -> Vec<&'static str> {
        shown.iter().map(|index| self.head[*index]).collect()
    }

    /// Returns the columns that are not left out, and the rows without the others.
    fn lay_out(&self, rows: &[Vec<String>], is_short: bool, left_out: &[usize]) -> Layout {
        let shown: Vec<usize> = (0..self.head.len())
            .filter(|index| !left_out.contains(index))
            .collect();
        let cell = |row: &[String], index: usize| match row[index].split_once('.') {
            Some((name, _)) if is_short && self.node == Some(index) => name.to_owned(),
            Some(_) | None => row[index].clone(),
        };
        let rows = rows.iter();
        let rows = rows.map(|row| shown.iter().map(|index| cell(row, *index)).collect());
        let rows = rows.collect();
        (shown, rows)
    }

    /// Shortens the names, one column after the other, until the last cell has room.
    fn narrow(&self, (shown, mut rows): Layout, columns: usize) -> Layout {
        let head = self.heads(&shown);
        for name in self.names {
            let Some(index) = shown.iter().position(|column| column == name) else {
                continue;
            };
            let missing = (width_of_others(&head, &rows) + LEAST_LAST).saturating_sub(columns);
            let widest = rows
                .iter()
                .map(|row| row[index].chars().count())
                .max()
                .unwrap_or(0);
            let room = widest.saturating_sub(missing).max(LEAST_NAME);
            for row in &mut rows {
                row[index] = shorten(&row[index], room);
            }
        }
        (shown, rows)
    }
}

/// Returns the width of all columns but the last one, with the blanks after each.
fn width_of_others(head: &[&str], rows: &[Vec<String>]) -> usize {
    let others = head.iter().take(head.len().saturating_sub(1)).enumerate();
    let widths = others.map(|(index, title)| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(title.chars().count()) + GAP
    });
    widths.sum()
}

fn draw_row(row: &[String], widths: &[usize], columns: usize) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += &format!("{cell:<width$}{:GAP$}", "");
    }
    shorten_end(line.trim_end(), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form {
        head: &["node", "count", "what"],
        node: Some(0),
        names: &[0],
        layouts: &[(false, &[]), (true, &[]), (true, &[1])],
    };

    #[test]
    fn a_row_stays_one_line_and_a_name_is_shortened_in_the_middle() {
        let rows = vec![
            [
                "ip-172-31-0-4.internal",
                "12",
                "one pod is waited for, and two are evicted",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for (width, line) in [
            (
                None,
                "ip-172-31-0-4.internal  12     one pod is waited for, and two are evicted",
            ),
            (
                Some(60),
                "ip-172-31-0-4.internal  12     one pod is waited for, and t…",
            ),
            (Some(45), "ip-172-31-0-4  12     one pod is waited for,…"),
            (Some(36), "ip-172-31-0-4  one pod is waited fo…"),
            (Some(31), "ip-1…-0-4  one pod is waited f…"),
            (Some(20), "ip-1…-0-4  one pod …"),
        ] {
            let drawn = FORM.draw(&rows, width);
            assert_eq!(drawn.len(), 2, "{width:?}");
            assert_eq!(drawn[1], line, "{width:?}");
        }
        assert_eq!(FORM.draw(&rows, None)[0], "NODE                    COUNT  WHAT");
        assert!(FORM.draw(&[], Some(80)).is_empty());
    }

    #[test]
    fn a_cell_is_cut_if_it_is_not_in_its_line() {
        let rows = vec![
            ["ip-1", "1", "one pod is waited for, and two are evicted"]
                .map(str::to_owned)
                .to_vec(),
        ];
        assert!(FORM.list_cut(&rows, None).is_empty());
        assert_eq!(FORM.list_cut(&rows, Some(40)), [0]);
    }
}
