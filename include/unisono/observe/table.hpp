#pragma once

/// \file
/// A table of text with aligned columns, for plans and reports.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Rows of cells. Each column is as wide as its widest cell; columns are two spaces apart; lines
/// have no trailing spaces. `Table({"bucket", ">bytes"})`: a heading that begins with '>' aligns
/// its column to the right.
class Table {
public:
    Table() = default; ///< no headings; all columns are aligned to the left

    explicit Table(std::initializer_list<std::string_view> headings);

    /// Adds a row, which may have fewer or more cells than others.
    Table& row(std::vector<std::string> cells);

    [[nodiscard]] std::size_t rows() const { return ends_.size() - (headed_ ? 1 : 0); }

    /// The table as text: one line per row, which begins with `indent` spaces and ends with a
    /// newline. Dashes under the headings.
    [[nodiscard]] std::string text(std::size_t indent = 0) const;

private:
    void line(std::string& all, std::size_t indent, const std::string* cells, std::size_t count) const;

    std::vector<std::string> cells_; ///< cells of all rows, row by row
    detail::List<std::size_t> ends_; ///< end of each row in `cells_`
    detail::List<std::size_t> widths_;
    detail::List<bool> to_the_right_;
    bool headed_ = false;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The number of columns of a text on a terminal: its UTF-8 code points (none here is
/// double-width).
UNISONO_DEFINITION std::size_t text_columns(std::string_view text) {
    std::size_t columns = 0;
    for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
    return columns;
}

} // namespace detail

UNISONO_DEFINITION Table::Table(std::initializer_list<std::string_view> headings) {
    std::vector<std::string> first;
    for (std::string_view heading : headings) {
        const bool right = heading.starts_with('>');
        to_the_right_.push_back(right);
        first.push_back(std::string(heading.substr(right ? 1 : 0)));
    }
    row(std::move(first));
    headed_ = true;
}

UNISONO_DEFINITION Table& Table::row(std::vector<std::string> cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
        if (c == widths_.size()) widths_.push_back(0);
        widths_[c] = std::max(widths_[c], detail::text_columns(cells[c]));
    }
    for (std::string& cell : cells) cells_.push_back(std::move(cell));
    ends_.push_back(cells_.size());
    return *this;
}

UNISONO_DEFINITION std::string Table::text(std::size_t indent) const {
    std::string all;
    std::size_t begin = 0;
    for (std::size_t r = 0; r < ends_.size(); begin = ends_[r++]) {
        line(all, indent, cells_.data() + begin, ends_[r] - begin);
        if (r != 0 || !headed_) continue;
        std::vector<std::string> rule;
        for (const std::size_t width : widths_) rule.push_back(std::string(width, '-'));
        line(all, indent, rule.data(), rule.size());
    }
    return all;
}

UNISONO_DEFINITION void Table::line(std::string& all, std::size_t indent, const std::string* cells,
                                    std::size_t count) const {
    const std::size_t begin = all.size();
    all.append(indent, ' ');
    for (std::size_t c = 0; c < count; ++c) {
        const std::size_t padding = widths_[c] - detail::text_columns(cells[c]);
        const bool right = c < to_the_right_.size() && to_the_right_[c];
        if (c != 0) all += "  ";
        if (right) all.append(padding, ' ');
        all += cells[c];
        if (!right) all.append(padding, ' ');
    }
    while (all.size() > begin && all.back() == ' ') all.pop_back();
    all += '\n';
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
