#pragma once

/// \file
/// The time of a message in a cluster of hosts: LogGP with tables instead of constants, and with
/// the resources that the ranks of a host share. Used by `schedule::predict`
/// (extensions/laboratory/timing.hpp), the transport Simulated (SimulationOptions::cluster), and
/// AutomaticReducer (extensions/automatic/predicted_costs.hpp). `bench_predict` fits it to
/// measurements between two ranks, and between all ranks of two hosts. (Culler et al. 1993;
/// Alexandrov et al. 1995)

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/number.hpp"
#include "unisono/core/text.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Nanoseconds by size: points (bytes, nanoseconds) in increasing order of size. Linear between
/// points and beyond the last one, constant below the first one. 0 without points.
struct TimeBySize {
    std::vector<std::pair<double, double>> points = {};

    friend bool operator==(const TimeBySize&, const TimeBySize&) = default;

    [[nodiscard]] double operator()(double bytes) const {
        if (points.empty()) return 0;
        if (points.size() == 1 || bytes <= points.front().first) return points.front().second;
        std::size_t i = 1;
        while (i + 1 < points.size() && points[i].first < bytes) ++i;
        const auto& [from, before] = points[i - 1];
        const auto& [to, after] = points[i];
        return std::max(0.0, before + (after - before) * (bytes - from) / (to - from));
    }
};

/// The times of a message on one host, or between hosts.
struct MessageTimes {
    TimeBySize
        one_way; ///< from the call of the send to the end of the receive, without other traffic: half of a ping-pong
    TimeBySize overhead; ///< time in which a rank can do nothing else, at both ends; a part of `one_way`
    TimeBySize gap;      ///< between two messages that one rank sends, or that one rank receives
    TimeBySize
        shared; ///< between two messages in the resource that a host's ranks share: its network card in each direction,
                ///< or its memory
    /// A larger message occupies its sender until it is acknowledged.
    double buffered_bytes = std::numeric_limits<double>::infinity();
    /// A larger message leaves once its receiver waits for it.
    double eager_bytes = std::numeric_limits<double>::infinity();

    friend bool operator==(const MessageTimes&, const MessageTimes&) = default;
};

/// A cluster of hosts with the same number of ranks; rank r is on host r / ranks_per_host.
struct ClusterModel {
    int ranks_per_host = 1;
    MessageTimes within;
    MessageTimes between;
    double combine_ns_per_byte = 0; ///< of combining one operand with another

    friend bool operator==(const ClusterModel&, const ClusterModel&) = default;

    [[nodiscard]] const MessageTimes& of(int rank, int peer) const {
        return rank / ranks_per_host == peer / ranks_per_host ? within : between;
    }

    /// \throws error bad_input: a time that is negative or not finite, sizes out of order, no
    ///   message times, hosts without ranks
    void check() const {
        if (ranks_per_host < 1)
            refuse_input({"ClusterModel::ranks_per_host is ", ranks_per_host, ", expected at least 1"});
        for_each_number(*this, [](const std::string& name, double value, bool limit) {
            if (!(value >= 0) || (!limit && !detail::is_finite(value)))
                refuse_input({"ClusterModel::", name, " is ", value, ", expected a finite time of at least 0"});
        });
        for_each_table(*this, [](const std::string& name, const TimeBySize& table) {
            if (table.points.empty() && name.ends_with("one_way"))
                refuse_input({"ClusterModel::", name, " is empty, expected at least one time"});
            for (std::size_t i = 0; i < table.points.size(); ++i) {
                const auto [bytes, time] = table.points[i];
                if (!detail::is_finite(time) || time < 0)
                    refuse_input({"ClusterModel::", name, " has ", time, " ns, expected a finite time of at least 0"});
                if (!(bytes >= 0) || (i != 0 && !(bytes > table.points[i - 1].first)))
                    refuse_input({"ClusterModel::", name, " has ", bytes, " bytes as its size ", i,
                                  ", expected sizes from 0 on in ascending order"});
            }
        });
    }

    /// A line for each number and table: its name, and `value` or `bytes:nanoseconds ...`. `load`
    /// restores the same bits.
    [[nodiscard]] std::string save() const {
        std::string text = concat({"unisono cluster model 1\nranks_per_host ", ranks_per_host, "\n"});
        const auto number = [](double value) {
            return detail::is_finite(value) ? detail::number_text(value, std::chars_format::general, 17) : "unlimited";
        };
        for_each_number(*this, [&](const std::string& name, double value, bool) {
            text += concat({name, " ", number(value), "\n"});
        });
        for_each_table(*this, [&](const std::string& name, const TimeBySize& table) {
            text += name;
            for (const auto& [bytes, time] : table.points) text += concat({" ", number(bytes), ":", number(time)});
            text += '\n';
        });
        return text;
    }

    /// Reads the text of `save`. \throws error bad_input, with the wrong line
    [[nodiscard]] static ClusterModel load(std::string_view text) {
        ClusterModel model;
        int line_number = 0;
        // The rest of the next line, which must begin with `name`.
        const auto line = [&](std::string_view name) {
            std::string_view found = detail::take_until(text, '\n');
            ++line_number;
            if (!found.starts_with(name) || (found.size() > name.size() && found[name.size()] != ' '))
                refuse_input({"cluster model, line ", line_number, ": found ", detail::quoted(found), ", expected '",
                              name, "' and its value"});
            found.remove_prefix(std::min(found.size(), name.size() + 1));
            return found;
        };
        const auto number = [&](std::string_view from) {
            constexpr double most = std::numeric_limits<double>::max();
            return from == "unlimited"
                       ? std::numeric_limits<double>::infinity()
                       : read_number<double>(from, concat({"cluster model, line ", line_number}), 0, most);
        };
        if (const std::string_view version = line("unisono cluster model"); version != "1")
            refuse_input({"cluster model: found version ", detail::quoted(version), ", expected 1"});
        const std::string_view ranks = line("ranks_per_host");
        model.ranks_per_host = read_number<int>(ranks, concat({"cluster model, line ", line_number}), 1);
        for_each_number(model, [&](const std::string& name, double& value, bool) { value = number(line(name)); });
        for_each_table(model, [&](const std::string& name, TimeBySize& table) {
            std::string_view rest = line(name);
            while (!rest.empty()) {
                std::string_view point = detail::take_until(rest, ' ');
                const double bytes = number(detail::take_until(point, ':'));
                table.points.emplace_back(bytes, number(point));
            }
        });
        if (text.find_first_not_of(" \r\n") != text.npos) {
            const std::string_view found = detail::take_until(text, '\n');
            refuse_input({"cluster model, line ", line_number + 1, ": found ", detail::quoted(found),
                          ", expected no more lines"});
        }
        model.check();
        return model;
    }

private:
    template <class Model, class Visit>
    static void for_each_number(Model& model, Visit visit) {
        visit("combine_ns_per_byte", model.combine_ns_per_byte, false);
        visit("within.buffered_bytes", model.within.buffered_bytes, true);
        visit("within.eager_bytes", model.within.eager_bytes, true);
        visit("between.buffered_bytes", model.between.buffered_bytes, true);
        visit("between.eager_bytes", model.between.eager_bytes, true);
    }
    template <class Model, class Visit>
    static void for_each_table(Model& model, Visit visit) {
        for (auto* times : {&model.within, &model.between}) {
            const std::string place = times == &model.within ? "within." : "between.";
            visit(place + "one_way", times->one_way);
            visit(place + "overhead", times->overhead);
            visit(place + "gap", times->gap);
            visit(place + "shared", times->shared);
        }
    }
};

namespace detail {

/// The messages of a cluster, in the order in which they are sent: tracks the time until which each
/// resource is busy. Rank r with r >= `ranks` is treated as rank r mod `ranks`.
class ClusterClock {
public:
    struct Times {
        double sender_free = 0; ///< the sender can do other work
        double sent = 0;        ///< the send is complete
        double arrival = 0;     ///< before the receiver's overhead
    };

    ClusterClock(const ClusterModel& model, int ranks)
        : model_(model), ranks_(ranks), rank_out_(static_cast<std::size_t>(ranks)), rank_in_(rank_out_.size()),
          host_out_(static_cast<std::size_t>((ranks - 1) / model.ranks_per_host + 1)), host_in_(host_out_.size()),
          memory_(host_out_.size()) {}

    Times send(int from, int to, double bytes, double now) {
        const MessageTimes& times = model_.of(from, to);
        const double overhead = times.overhead(bytes);
        const double gap = times.gap(bytes);
        const double shared = times.shared(bytes);
        const bool local = &times == &model_.within;
        double& out = rank_out_[played(from)];
        double& out_shared = local ? memory_[host(from)] : host_out_[host(from)];
        const double start = std::max(now, out);
        const double start_shared = std::max(start, out_shared);
        out = start + gap;
        out_shared = start_shared + shared;
        double arrival = start_shared + times.one_way(bytes) - overhead;
        double& in = rank_in_[played(to)];
        arrival = std::max(arrival, in + gap);
        if (!local) arrival = host_in_[host(to)] = std::max(arrival, host_in_[host(to)] + shared);
        in = arrival;
        const bool buffered = bytes <= times.buffered_bytes;
        const double free = now + overhead;
        return {free, buffered ? free : std::max(free, arrival + times.one_way(0) - times.overhead(0)), arrival};
    }

    /// The arrival of a message whose receiver has waited since `waits`.
    [[nodiscard]] double met(int from, int to, double bytes, double arrival, double waits) const {
        const MessageTimes& times = model_.of(from, to);
        if (bytes <= times.eager_bytes) return arrival;
        return std::max(arrival, waits + times.one_way(bytes) - times.overhead(bytes) - times.one_way(0));
    }

private:
    [[nodiscard]] std::size_t played(int rank) const { return static_cast<std::size_t>(rank % ranks_); }
    [[nodiscard]] std::size_t host(int rank) const {
        return static_cast<std::size_t>(rank % ranks_ / model_.ranks_per_host);
    }

    const ClusterModel& model_;
    int ranks_;
    std::vector<double> rank_out_;
    std::vector<double> rank_in_;
    std::vector<double> host_out_;
    std::vector<double> host_in_;
    std::vector<double> memory_;
};

} // namespace detail
UNISONO_NAMESPACE_END
