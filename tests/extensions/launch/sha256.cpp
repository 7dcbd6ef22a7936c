// SHA-256 and HMAC against published vectors: the examples of FIPS 180-4, NIST's long one, and RFC
// 4231.

#include <unisono/extensions/launch/secrets/sha256.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace un = unisono;

namespace {

std::string text_of(const un::detail::Digest& digest) {
    std::string text;
    for (const std::uint8_t byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

std::string hash(std::string_view text) {
    un::detail::Sha256 one;
    one.add(text);
    return text_of(one.finish());
}

std::string code(const std::vector<std::uint8_t>& key, std::string_view text) {
    return text_of(un::detail::HmacSha256(key).add(text).finish());
}

std::vector<std::uint8_t> bytes(std::string_view text) { return {text.begin(), text.end()}; }

} // namespace

BOOST_AUTO_TEST_SUITE(launch_sha256)

BOOST_AUTO_TEST_CASE(published_hashes) {
    BOOST_TEST(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    BOOST_TEST(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    BOOST_TEST(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    BOOST_TEST(
        hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
             "nopqrstu") == "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    BOOST_TEST(hash(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

BOOST_AUTO_TEST_CASE(published_authentication_codes) {
    BOOST_TEST(code(std::vector<std::uint8_t>(20, 0x0b), "Hi There") ==
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    BOOST_TEST(code(bytes("Jefe"), "what do ya want for nothing?") ==
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    BOOST_TEST(code(std::vector<std::uint8_t>(20, 0xaa), std::string(50, '\xdd')) ==
               "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    std::vector<std::uint8_t> counted;
    for (std::uint8_t i = 1; i <= 25; ++i) counted.push_back(i);
    BOOST_TEST(code(counted, std::string(50, '\xcd')) ==
               "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    BOOST_TEST(code(std::vector<std::uint8_t>(131, 0xaa), "Test Using Larger Than Block-Size Key - Hash Key First") ==
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    BOOST_TEST(
        code(std::vector<std::uint8_t>(131, 0xaa),
             "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
             "to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

BOOST_AUTO_TEST_CASE(in_parts_of_any_length_and_from_a_copy) {
    const std::string text(300, 'x');
    for (std::size_t length = 0; length <= text.size(); length += 7) {
        const std::string_view whole = std::string_view(text).substr(0, length);
        for (std::size_t cut = 0; cut <= length; cut += 5) {
            un::detail::Sha256 parts;
            parts.add(whole.substr(0, cut));
            un::detail::Sha256 copy = parts;
            copy.add(whole.substr(cut));
            BOOST_TEST_REQUIRE(text_of(copy.finish()) == hash(whole), length << " cut at " << cut);
        }
    }
    const std::vector<std::uint8_t> a(32, 1);
    std::vector<std::uint8_t> b = a;
    BOOST_TEST(un::detail::equal_in_constant_time(a, b));
    b[31] ^= 0x80;
    BOOST_TEST(!un::detail::equal_in_constant_time(a, b));
    BOOST_TEST(!un::detail::equal_in_constant_time(a, std::vector<std::uint8_t>(31, 1)));
}

BOOST_AUTO_TEST_SUITE_END()
