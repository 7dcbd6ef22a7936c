#pragma once

/// \file
/// The messages that a member has to send. Members that are gone get none.

#include "unisono/extensions/elastic/electorate.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"

#include <cstddef>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Rules>
class MembershipOutbox : protected Electorate<Rules> {
    using Base = Electorate<Rules>;

public:
    /// The messages to send, with their receivers.
    [[nodiscard]] std::vector<std::pair<int, MembershipMessage>> take_messages() { return std::exchange(out_, {}); }

protected:
    using Base::Base;

    void send(int to, MembershipMessage message) {
        if (to != Base::me_ && !Base::is_gone(to)) out_.emplace_back(to, std::move(message));
    }
    void send_as(MembershipWord word, int to, MembershipMessage message) {
        message.word = word;
        send(to, std::move(message));
    }
    void send_all(const MembershipMessage& message) {
        for (const int member : Base::members_) send(member, message);
    }
    /// Sends a message to the members that the last decision has added.
    void send_added_as(MembershipWord word, const MembershipMessage& message) {
        const Successor& last = Base::decision_;
        for (std::size_t i = last.kept(); i < last.members.size(); ++i) send_as(word, last.members[i], message);
    }

private:
    std::vector<std::pair<int, MembershipMessage>> out_;
};

} // namespace detail
UNISONO_NAMESPACE_END
