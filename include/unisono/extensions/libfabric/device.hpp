#pragma once

/// \file
/// One rank's endpoint of libfabric: finds it by negotiation, opens it, describes it in errors,
/// closes it. Each rank makes its own fabric, domain, address vector and completion queue, since
/// threads on endpoints of one domain misroute messages.
///
/// It asks for reliable datagrams, tagged messages, ordered sends, and progress by polling (no
/// thread of the library's). It offers all modes of memory registration and honours the answer:
/// with FI_MR_LOCAL `register_memory` registers. Tried with net, tcp;ofi_rxm and shm. Of verbs and
/// efa only this negotiation was tried, for lack of their hardware.
///
/// No thread is cancelled inside libfabric, where it may hold a lock that the other ranks of its
/// process would then await for ever.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/libfabric/choice.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class FabricDevice {
public:
    FabricDevice() = default; ///< none: not open
    /// `options`, already completed from the environment. `start`: the first port of the range to
    /// try. Errors: refused, with provider, interface and ports.
    FabricDevice(const LibfabricOptions& options, bool other_hosts, int start = 0) : options_(options) {
        const NotCancelled whole;
        choose(other_hosts);
        open_somewhere(start);
    }

    [[nodiscard]] const std::string& provider() const { return provider_; }
    [[nodiscard]] const std::string& interface() const { return interface_; }
    /// "provider net, interface lo".
    [[nodiscard]] std::string text() const {
        return concat({"provider ", provider_.empty() ? "(any)" : provider_, ", interface ",
                       interface_.empty() ? "(any)" : interface_});
    }

    /// The address by which peers reach this endpoint: opaque bytes.
    [[nodiscard]] const std::vector<std::byte>& address() const { return address_; }
    /// The text of an address, of this rank or of a peer with the same provider.
    [[nodiscard]] std::string text_of(const std::vector<std::byte>& address) const {
        if (av_ == nullptr) return socket_text(address); // closed after a fault
        if (address.empty()) return "?";
        char text[256] = {};
        std::size_t length = sizeof text - 1;
        const NotCancelled whole;
        fi_av_straddr(av_.get(), address.data(), text, &length);
        const std::string found = text;
        const std::size_t scheme = found.find("://");
        return scheme == std::string::npos ? found : found.substr(scheme + 3);
    }
    /// As `text_of` for a socket's address, without libfabric.
    static std::string socket_text(const std::vector<std::byte>& address) {
        SocketAddress socket;
        if (address.size() < sizeof(sockaddr_in) || address.size() > sizeof socket.storage) return "?";
        std::memcpy(&socket.storage, address.data(), address.size());
        const bool known = socket.storage.ss_family == AF_INET || socket.storage.ss_family == AF_INET6;
        return known ? concat({host_text(socket), ":", port_of(socket)}) : std::string("?");
    }
    /// Adds a peer's address; FI_ADDR_NOTAVAIL if libfabric rejects it.
    [[nodiscard]] fi_addr_t insert(const std::vector<std::byte>& address) {
        fi_addr_t found = FI_ADDR_NOTAVAIL;
        const NotCancelled whole;
        return fi_av_insert(av_.get(), address.data(), 1, &found, 0, nullptr) == 1 ? found : FI_ADDR_NOTAVAIL;
    }

    /// Sends at most `inject_bytes()`, which libfabric does not check. Returns at once; there is no
    /// completion.
    [[nodiscard]] std::size_t inject_bytes() const { return info().tx_attr->inject_size; }
    ssize_t inject(fi_addr_t to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
        const NotCancelled whole;
        return fi_tinject(endpoint_.get(), data, bytes, to, tag);
    }
    /// Returns 0, -FI_EAGAIN (nothing has begun: try later), or an error.
    ssize_t send(fi_addr_t to, std::uint64_t tag, const std::byte* data, std::size_t bytes, fid_mr* region,
                 FabricOperation& operation) {
        const NotCancelled whole;
        return fi_tsend(endpoint_.get(), data, bytes, descriptor(region), to, tag, &operation.context);
    }
    /// Sends one message from two buffers, without copying them. Only if memory needs no
    /// registration.
    ssize_t send_both(fi_addr_t to, std::uint64_t tag, const std::byte* first, std::size_t first_bytes,
                      const std::byte* second, std::size_t second_bytes, FabricOperation& operation) {
        const iovec parts[2] = {{const_cast<std::byte*>(first), first_bytes},
                                {const_cast<std::byte*>(second), second_bytes}};
        fi_msg_tagged message{};
        message.msg_iov = parts;
        message.iov_count = 2;
        message.addr = to;
        message.tag = tag;
        message.context = &operation.context;
        const NotCancelled whole;
        return fi_tsendmsg(endpoint_.get(), &message, FI_COMPLETION);
    }
    [[nodiscard]] bool sends_both() const {
        return is_open() && !wants_registration() && !peers_read() && info().tx_attr->iov_limit >= 2;
    }
    ssize_t receive(fi_addr_t from, std::uint64_t tag, std::byte* data, std::size_t bytes, fid_mr* region,
                    FabricOperation& operation) {
        const NotCancelled whole;
        return fi_trecv(endpoint_.get(), data, bytes, descriptor(region), from, tag, 0, &operation.context);
    }

    static constexpr int most_completions = 16; ///< of a call of `poll`
    /// Advances all operations, and calls done(operation, failed, bytes) for each completion;
    /// `failed` is 0 or positive. The result is not 0 if libfabric cannot continue.
    template <class Done>
    ssize_t poll(Done&& done) {
        const NotCancelled whole;
        fi_cq_tagged_entry entries[most_completions];
        const ssize_t count = fi_cq_read(queue_.get(), entries, most_completions);
        if (count == -FI_EAGAIN) return 0;
        for (ssize_t i = 0; i < count; ++i)
            if (entries[i].op_context != nullptr) done(operation_of(entries[i].op_context), 0, entries[i].len);
        if (count >= 0) return 0;
        if (count != -FI_EAVAIL) return count;
        fi_cq_err_entry failed{};
        if (fi_cq_readerr(queue_.get(), &failed, 0) != 1) return 0;
        const int why = failed.err < 0 ? -failed.err : failed.err; // shm's are negative
        if (failed.op_context != nullptr) done(operation_of(failed.op_context), why == 0 ? FI_EIO : why, failed.len);
        return 0;
    }

    /// True if memory must be registered before sending from it or receiving into it.
    [[nodiscard]] bool wants_registration() const {
        return is_open() && (registers_ || (info().domain_attr->mr_mode & FI_MR_LOCAL) != 0);
    }
    /// Registers in any case, so that registration can be tested without hardware that needs it.
    void register_always() { registers_ = true; }
    /// Registers memory, if registration is needed. Errors: refused.
    [[nodiscard]] FabricRegion register_memory(const void* data, std::size_t bytes) {
        if (!wants_registration() || bytes == 0) return {};
        const NotCancelled whole;
        fid_mr* made = nullptr;
        const int failed = fi_mr_reg(domain(), data, bytes, FI_SEND | FI_RECV, 0, next_key_++, 0, &made, nullptr);
        return bound({domain_, FabricHandle<fid_mr>(made)}, failed, "fi_mr_reg", bytes);
    }
    /// The number of registrations so far.
    [[nodiscard]] std::uint64_t registrations() const { return next_key_ - 1; }
    /// True if peers read this rank's memory at any time, without its help (over shm, by the
    /// kernel).
    [[nodiscard]] bool peers_read() const { return provider_.find("shm") != std::string::npos; }

    /// True if there is an endpoint. After `close` libfabric accesses no memory.
    [[nodiscard]] bool is_open() const { return endpoint_ != nullptr; }
    void close() noexcept {
        const NotCancelled whole;
        endpoint_.reset();
        queue_.reset();
        av_.reset();
    }

    [[nodiscard]] static std::string error_text(ssize_t failed) { return fabric_error_text(failed); }
    [[noreturn, gnu::cold]] void refuse(const std::string& why) const {
        throw error(
            ErrorCode::refused,
            concat({"libfabric (", text(),
                    options_.port_range == PortRange{} ? "" : concat({", ", detail::text_of(options_.port_range)}),
                    "): ", why}));
    }

private:
    static constexpr std::uint32_t version = FI_VERSION(1, 17);

    static FabricOperation& operation_of(void* context) {
        return *reinterpret_cast<FabricOperation*>(context); // of standard layout, with the context first
    }
    static_assert(std::is_standard_layout_v<FabricOperation>);
    [[nodiscard]] fi_info& info() const { return *domain_->info; }
    [[nodiscard]] fid_domain* domain() const { return domain_->domain.get(); }
    static void* descriptor(fid_mr* region) { return region == nullptr ? nullptr : fi_mr_desc(region); }

    /// Completes the registration of a region; refuses if it failed.
    [[nodiscard]] FabricRegion bound(FabricRegion region, int failed, const char* call, std::size_t bytes) const {
        if (failed == 0 && (info().domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
            failed = fi_mr_bind(region.handle.get(), &endpoint_->fid, 0);
            if (failed == 0) failed = fi_mr_enable(region.handle.get());
        }
        if (failed != 0) refuse(concat({call, " of ", bytes, " bytes: ", error_text(failed)}));
        return region;
    }

    void open_somewhere(int start) {
        const PortRange& ports = options_.port_range;
        const bool ranged = ports.first != 0 && has_port();
        const int count = ranged ? ports.last - ports.first + 1 : 1;
        for (int i = 0;; ++i) {
            if (ranged) set_port(ports.first + (start + i) % count);
            const char* what = "";
            const int failed = open(what);
            if (failed == 0) break;
            close();
            if (i + 1 < count && failed == -FI_EADDRINUSE) continue;
            refuse(concat({what, ": ", error_text(failed)}));
        }
    }

    /// Chooses the best of the offered networks.
    void choose(bool other_hosts) {
        provider_ = options_.provider;
        interface_ = options_.interface;
        const bool has_interfaces = provider_.find("shm") == std::string::npos;
        if (!has_interfaces) interface_.clear();
        NetworkInterface found;
        std::string address, missing;
        if (!interface_.empty() || (!other_hosts && has_interfaces)) {
            try {
                found = find_interface(interface_, false);
                address = host_text(found.address);
            } catch (const error& failed) { // it may be a domain's name, and a host without a loopback has other ways
                missing = failed.why().message;
            }
        }
        const bool by_domain = !interface_.empty() && address.empty();
        fi_info* list = nullptr;
        int failed = ask(address, by_domain ? interface_ : "", list);
        if (failed != 0 && interface_.empty() && !address.empty()) { // the provider has no loopback
            found = {};
            address.clear();
            failed = ask("", "", list);
        }
        const FabricHandle<fi_info> all(list);
        const fi_info* best = nullptr;
        for (const fi_info* one = list; one != nullptr; one = one->next) {
            const char* const domain = one->domain_attr->name;
            if (by_domain && (domain == nullptr || interface_ != domain)) continue; // socket providers ignore it
            if (best == nullptr || is_better(*one, *best)) best = one;
        }
        if (best == nullptr)
            refuse(by_domain ? concat({missing, "; and the provider has no domain of that name"})
                             : concat({"no reliable datagrams with tags there: ", error_text(failed)}));
        if (provider_.empty() && fabric_place(*best) < 0)
            refuse(concat({"no provider that is chosen without its name; there is ", best->fabric_attr->prov_name}));
        provider_ = best->fabric_attr->prov_name;
        if (!found.name.empty()) interface_ = found.name;
        else if (interface_.empty() && best->domain_attr->name != nullptr) interface_ = best->domain_attr->name;
        domain_->info.reset(fi_dupinfo(best));
    }

    int ask(const std::string& node, const std::string& domain, fi_info*& list) const {
        const FabricHandle<fi_info> hints(fi_allocinfo());
        if (hints == nullptr) return -FI_ENOMEM;
        hints->ep_attr->type = FI_EP_RDM;
        hints->caps = FI_MSG | FI_TAGGED;
        hints->mode = FI_CONTEXT | FI_CONTEXT2;
        hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
        hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
        hints->domain_attr->av_type = FI_AV_TABLE;
        hints->tx_attr->msg_order = FI_ORDER_SAS;
        hints->rx_attr->msg_order = FI_ORDER_SAS;
        if (!provider_.empty()) hints->fabric_attr->prov_name = ::strdup(provider_.c_str());
        if (!domain.empty()) hints->domain_attr->name = ::strdup(domain.c_str());
        const bool named = !node.empty();
        return fi_getinfo(version, named ? node.c_str() : nullptr, named ? "0" : nullptr, named ? FI_SOURCE : 0,
                          hints.get(), &list);
    }

    [[nodiscard]] bool has_port() const {
        return info().src_addr != nullptr &&
               (info().addr_format == FI_SOCKADDR_IN || info().addr_format == FI_SOCKADDR_IN6);
    }
    void set_port(int port) {
        const in_port_t number = htons(static_cast<std::uint16_t>(port));
        if (info().addr_format == FI_SOCKADDR_IN) static_cast<sockaddr_in*>(info().src_addr)->sin_port = number;
        else static_cast<sockaddr_in6*>(info().src_addr)->sin6_port = number;
    }

    /// Opens the objects. Returns 0, or the error, with the failed call in `what`.
    int open(const char*& what) {
        const auto own = [&](auto& handle, const char* call, auto make) {
            what = call;
            typename std::remove_reference_t<decltype(handle)>::pointer made = nullptr;
            const int failed = make(&made);
            if (failed == 0) handle.reset(made);
            return failed;
        };
        int failed = 0;
        if (domain_->domain == nullptr) {
            failed = own(domain_->fabric, "fi_fabric",
                         [&](fid_fabric** made) { return fi_fabric(info().fabric_attr, made, nullptr); });
            if (failed == 0)
                failed = own(domain_->domain, "fi_domain", [&](fid_domain** made) {
                    return fi_domain(domain_->fabric.get(), domain_->info.get(), made, nullptr);
                });
        }
        fi_av_attr vector{};
        vector.type = FI_AV_TABLE;
        if (failed == 0)
            failed =
                own(av_, "fi_av_open", [&](fid_av** made) { return fi_av_open(domain(), &vector, made, nullptr); });
        fi_cq_attr queue{};
        queue.format = FI_CQ_FORMAT_TAGGED;
        queue.wait_obj = FI_WAIT_NONE;
        if (failed == 0)
            failed =
                own(queue_, "fi_cq_open", [&](fid_cq** made) { return fi_cq_open(domain(), &queue, made, nullptr); });
        if (failed == 0)
            failed = own(endpoint_, "fi_endpoint",
                         [&](fid_ep** made) { return fi_endpoint(domain(), domain_->info.get(), made, nullptr); });
        if (failed != 0) return failed;
        what = "fi_enable";
        failed = fi_ep_bind(endpoint_.get(), &av_->fid, 0);
        if (failed == 0) failed = fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV);
        if (failed == 0) failed = fi_enable(endpoint_.get());
        if (failed != 0) return failed;
        what = "fi_getname";
        std::size_t length = 0;
        fi_getname(&endpoint_->fid, nullptr, &length);
        address_.resize(length);
        return fi_getname(&endpoint_->fid, address_.data(), &length);
    }

    LibfabricOptions options_;
    std::string provider_, interface_;
    std::shared_ptr<FabricDomain> domain_ = std::make_shared<FabricDomain>();
    FabricHandle<fid_av> av_; // objects declared below are closed before it
    FabricHandle<fid_cq> queue_;
    FabricHandle<fid_ep> endpoint_;
    std::vector<std::byte> address_;
    std::uint64_t next_key_ = 1;
    bool registers_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
