// The format of files, and what is refused.
#include "support/fails.hpp"
#include "support/folder.hpp"
#include "support/refusal.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/folder.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"
#include "unisono/extensions/checkpoint/writing.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/resource.h>

namespace un = unisono;
using namespace unisono_test;
using un::detail::Json;
using un::detail::JsonText;

namespace {

template <class Call>
void refused(Call call, const std::string& words) {
    test::fails({words}, call);
}

std::string sum_of(const std::string& text) { return un::hash_text(un::detail::xxh64(text.data(), text.size())); }

/// A file with this header and `data` bytes after it. `length` is the header's length field; -1:
/// its true length.
std::string tensor_file(const Folder& folder, const std::string& header, std::size_t data, std::int64_t length = -1) {
    const std::string path = folder / "x.safetensors";
    std::ofstream file(path, std::ios::binary);
    const std::uint64_t bytes = length < 0 ? header.size() : static_cast<std::uint64_t>(length);
    file.write(reinterpret_cast<const char*>(&bytes), 8);
    file << header << std::string(data, 'x');
    return path;
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_format)

BOOST_AUTO_TEST_CASE(checksums) { // as other implementations compute them
    BOOST_TEST(sum_of("") == "ef46db3751d8e999");
    BOOST_TEST(sum_of("a") == "d24ec4f1a98c6e5b");
    BOOST_TEST(sum_of("abc") == "44bc2cf5ad770999");
    BOOST_TEST(sum_of("Nobody inspects the spammish repetition") == "fbcea83c8a378bf1");
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
    for (std::size_t size = 0; size <= text.size(); ++size) // the same in parts, wherever they end
        for (const std::size_t piece : {1u, 3u, 31u, 32u, 33u, 100u}) {
            un::detail::Xxh64 sum;
            for (std::size_t at = 0; at < size; at += piece) sum.add(text.data() + at, std::min(piece, size - at));
            BOOST_TEST_REQUIRE(sum.value() == un::detail::xxh64(text.data(), size));
        }
}

BOOST_AUTO_TEST_CASE(json) {
    const auto parse = [](const std::string& text) { return JsonText(text, "here"); };
    for (const char* good :
         {"null", " true ", "[]", "{}", "[1,-2.5e+3,0.1,0]", R"({"a":{"b":[{}]},"":"\u0041\n\ud83d\ude00"})",
          "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""}) {
        BOOST_TEST_CONTEXT(good) {
            BOOST_CHECK_NO_THROW(parse(good));
            BOOST_TEST(nlohmann::json::accept(good)); // other parsers agree
        }
    }
    for (const char* bad : {"",
                            " ",
                            "nul",
                            "tru",
                            "[1,]",
                            "[,1]",
                            "[1",
                            "{\"a\"}",
                            "{\"a\":}",
                            "{\"a\":1,}",
                            "{a:1}",
                            "{1:2}",
                            "01",
                            "-",
                            "+1",
                            ".5",
                            "1.",
                            "1e",
                            "1e+",
                            "0x1",
                            "NaN",
                            "\"",
                            "\"\\x\"",
                            "\"\\u12g4\"",
                            "\"\\ud800\"",
                            "\"\\ud800\\u0041\"",
                            "\"\\udc00\"",
                            "\"\n\"",
                            "\"\x80\"",
                            "\"\xc0\xaf\"",
                            "\"\xed\xa0\x80\"",
                            "\"\xf5\x80\x80\x80\"",
                            "\"\xe2\x82\"",
                            "1 2",
                            "[1] ]",
                            "'a'",
                            "[1 2]",
                            "{\"a\" 1}",
                            "\"\\",
                            "\"\\u",
                            "-01"}) {
        BOOST_TEST_CONTEXT(bad) {
            refused([&] { parse(bad); }, "here: found ");
            BOOST_TEST(!nlohmann::json::accept(bad));
        }
    }
    refused([&] { parse("{\"a\":1,\"b\":2,\"a\":3}"); }, "here: found the member \"a\" twice in one object");
    refused([&] { parse("[1, x]"); }, "here: found 'x' at byte 4; expected a value");
    refused([&] { parse(std::string(1000, '[')); }, "at most 16 levels");
    std::string many = "[";
    for (std::size_t i = 0; i < Json::most_values(0); ++i) many += "1,";
    refused([&] { parse(many + "1]"); }, "values");
    many = "[";
    for (std::size_t i = 0; i < Json::most_values(0); ++i) many += "1234567,";
    // A longer text may have more.
    BOOST_TEST(parse(many + "1]").root().items().size() == Json::most_values(0) + 1);
    BOOST_TEST(parse("\"\\u00e4\\u20ac\\ud83d\\ude00\"").root().text() == "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    BOOST_TEST(parse("18446744073709551615").root().integer<std::uint64_t>("x") == ~std::uint64_t{0});
    BOOST_TEST(parse("-9223372036854775808").root().integer<std::int64_t>("x") ==
               std::numeric_limits<std::int64_t>::min());
    for (const char* none : {"18446744073709551616", "-1", "1.0", "1e2"})
        refused([&] { static_cast<void>(parse(none).root().integer<std::uint64_t>("x")); },
                "expected an integer of 64 bits");
    refused([&] { static_cast<void>(parse("[]").root().string("x")); }, "x: found an array; expected a string");
    refused([&] { parse("{\"a\":1}").root().expect_members({"a", "b"}, "x"); }, "x: found no member \"b\"");
    refused([&] { parse("{\"a\":1,\"c\":1}").root().expect_members({"a"}, "x"); },
            "x: found a member \"c\" that is not known");
    {
        const JsonText text(R"( {"a":[1,[2,{"x":3}],4],"b\u00e4\n":"x\ty\u20acz","":{},"c":true} )", "here");
        std::vector<std::string> names, items;
        for (const Json& one : text.root().items()) names.emplace_back(one.name());
        BOOST_TEST(names == (std::vector<std::string>{"a", "b\xc3\xa4\n", "", "c"}));
        for (const Json& one : text.root().member("a", "x").array("x")) items.emplace_back(one.text());
        BOOST_TEST(items == (std::vector<std::string>{"1", "", "4"}));
        BOOST_TEST(text.root().member("b\xc3\xa4\n", "x").string("x") == "x\ty\xe2\x82\xacz");
        BOOST_TEST(text.root().member("", "x").items().size() == 0u);
        BOOST_TEST((text.root().has("c") && text.root().member("c", "x").boolean("x") && !text.root().has("x")));
        text.root().expect_members({"c", "a", ""}, "x", {"b\xc3\xa4\n"});
        refused(
            [&] {
                static_cast<void>(text.root().member("c", {"in", ": c"}).string({"in", ": c"}));
            },
            "in: c: found true or false; expected a string");
    }
    std::string members = "{"; // so many that they are compared in another way
    for (int i = 0; i < 20; ++i) members += "\"m" + std::to_string(i) + "\":0,";
    BOOST_TEST(parse(members + "\"m20\":0}").root().items().size() == 21u);
    refused([&] { parse(members + "\"m7\":0,\"m3\":0}"); }, "here: found the member \"m3\" twice in one object");
    std::string all;
    for (int i = 0; i < 128; ++i) all += static_cast<char>(i);
    BOOST_TEST(parse(un::detail::json_text(all)).root().text() == all);
    BOOST_TEST(nlohmann::json::parse(un::detail::json_text(all)).get<std::string>() == all);
    refused([] { un::detail::json_text("\xff"); }, "not UTF-8");
}

BOOST_AUTO_TEST_CASE(tensors_there_and_back) {
    const Folder folder;
    std::vector<float> a(6);
    std::iota(a.begin(), a.end(), 0.5f);
    const std::vector<double> b = {1, 2, 3};
    const std::vector<un::bfloat16> c(5, un::bfloat16(1.5f));
    const std::vector<std::int64_t> d = {-1};
    const std::vector<unsigned char> e = {1, 2, 3};
    const std::string path = folder / "some.safetensors";
    un::write_tensors(path, {{{.name = "\xc3\xa4 \"quoted\"", .type = "F32", .shape = {2, 3}}, a.data()},
                             {{.name = "b", .type = "F64", .shape = {3}}, b.data()},
                             {{.name = "c", .type = "BF16", .shape = {5, 1}}, c.data()},
                             {{.name = "none", .type = "F32", .shape = {4, 0}}, nullptr},
                             {{.name = "scalar", .type = "I64", .shape = {}}, d.data()},
                             {{.name = "e", .type = "U8", .shape = {3}}, e.data()}});
    const un::TensorFile file(path);
    BOOST_TEST_REQUIRE(file.tensors().size() == 6u);
    BOOST_TEST((content(path).size() - file.tensors().back().end) % 8 == 0u); // numbers are aligned
    const un::Tensor* const first = file.find("\xc3\xa4 \"quoted\"");
    BOOST_TEST_REQUIRE(first != nullptr);
    BOOST_TEST(first->shape == (std::vector<std::uint64_t>{2, 3}));
    std::vector<float> again(4);
    file.read(*first, std::span(again), 2);
    BOOST_TEST(again == (std::vector<float>{2.5f, 3.5f, 4.5f, 5.5f}));
    std::vector<double> b2(3);
    file.read(*file.find("b"), std::span(b2));
    BOOST_TEST(b2 == b);
    BOOST_TEST(file.find("none")->bytes() == 0u);
    BOOST_TEST(file.find("scalar")->bytes() == 8u);
    BOOST_TEST(file.find("b2") == nullptr);
    refused([&] { file.read(*file.find("b"), std::span(again)); }, "tensor \"b\" is of type F64; expected F32");
    refused([&] { file.read(*first, std::span(again), 3); }, "has 6 elements; expected 4 from element 3 on");
    refused([&] { un::write_tensors(path, {}); }, "cannot create '" + path + "': File exists");
    refused([&] { un::write_tensors(folder / "1", {{{.name = "a", .type = "F31"}, nullptr}}); }, "of type \"F31\"");
    const un::Tensor one{.name = "a", .type = "F32", .shape = {0}};
    refused([&] { un::write_tensors(folder / "2", {{one, nullptr}, {one, nullptr}}); }, "would have the name \"a\"");
    refused(
        [&] {
            un::write_tensors(folder / "3", {{{.name = "__metadata__", .type = "F32", .shape = {0}}, nullptr}});
        },
        "__metadata__");
    const un::Tensor dense{.name = "a", .type = "U8", .shape = std::vector<std::uint64_t>(Json::most_values(0), 1)};
    // It could not be read back.
    refused([&] { un::write_tensors(folder / "4", {{dense, e.data()}}); }, "values");
    BOOST_TEST(!std::filesystem::exists(folder / "4"));
}

BOOST_AUTO_TEST_CASE(no_half_written_tensors_remain) {
    const Folder folder;
    const std::vector<float> much(100'000);
    rlimit before{};
    BOOST_TEST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{100'000, before.rlim_max};
    BOOST_TEST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
    const std::string refusal = test::error_text([&] {
        un::write_tensors(folder / "1", {{{.name = "w", .type = "F32", .shape = {much.size()}}, much.data()}});
    });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    test::says(refusal, "cannot write '");
    BOOST_TEST(!std::filesystem::exists(folder / "1"));
}

BOOST_AUTO_TEST_CASE(a_file_system_that_squashes_root_is_named_as_the_cause) {
    const auto refuse = [](int why) { un::detail::refuse_path("create", "folder/file", why); };
    refused([&] { refuse(EACCES); }, "cannot create 'folder/file': Permission denied");
    if (::geteuid() == 0) refused([&] { refuse(EACCES); }, "root_squash");
    try {
        refuse(ENOSPC);
    } catch (const un::error& failed) {
        BOOST_TEST(std::string(failed.what()).find("root_squash") == std::string::npos, failed.what());
    }
}

BOOST_AUTO_TEST_CASE(tensor_files_that_are_refused) {
    const Folder folder;
    const auto read = [&](const std::string& header, std::size_t data, const std::string& words,
                          std::int64_t length = -1) {
        const std::string path = tensor_file(folder, header, data, length);
        refused([&] { un::TensorFile{path}; }, words);
        refused([&] { un::TensorFile{path}; }, "'" + path + "'");
    };
    const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    BOOST_TEST(un::TensorFile(tensor_file(folder, "{" + a + "}", 8)).tensors().size() == 1u);
    BOOST_TEST(un::TensorFile(tensor_file(folder, "{" + a + "}   ", 8)).tensors().size() == 1u);
    BOOST_TEST(un::TensorFile(tensor_file(folder, "{}", 0)).tensors().empty());
    BOOST_TEST(un::TensorFile(tensor_file(folder, R"({"__metadata__":{"x":"y"}})", 0)).metadata()[0].second == "y");
    // Tensors may stand in any order in the header.
    BOOST_TEST(
        un::TensorFile(tensor_file(folder, R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},)" + a + "}", 9))
            .tensors()[0]
            .name == "a");
    read("{" + a + "}", 7, "its tensors have 8 bytes, and the file has 7");
    read("{" + a + "}", 9, "its tensors have 8 bytes, and the file has 9");
    read("{" + a + "," + a + "}", 8, "found the member \"a\" twice");
    read(" {" + a + "}", 8, "expected a header that begins with '{'");
    read("", 0, "expected a header that begins with '{'");
    read("{" + a, 8, "found the end");
    read("{" + a + "}x", 8, "expected the end");
    read("{}", 0, "found a header of 100000001 bytes; expected at most 100000000", 100'000'001);
    read("{}", 0, "found a header of 3 bytes; expected at most 2", 3);
    read("{}", 0, "bytes; expected at most 100000000", std::numeric_limits<std::int64_t>::max());
    const auto one = [&](const std::string& facts, std::size_t data, const std::string& words) {
        read(R"({"a":{)" + facts + "}}", data, words);
    };
    one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])", 8, "unknown element type \"F33\"");
    one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8, "found bytes 0 to 8; expected 12");
    one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", 8, "found bytes 8 to 0; expected 8");
    one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8, "found -2; expected an integer");
    one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8, "found 2.0; expected an integer");
    one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0, "more elements than 64 bits count");
    one(R"("dtype":"F32","shape":[2],"data_offsets":[0])", 8, "found 1 data_offsets; expected 2");
    one(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", 12, "begins at byte 4; expected 0");
    one(R"("dtype":"F32","shape":[2])", 8, "found no member \"data_offsets\"");
    one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)", 8, "found a member \"x\" that is not known");
    read("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20,
         "\"b\" begins at byte 12; expected 8");
    read("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
         "\"b\" begins at byte 4; expected 8");
    read(R"({"a":1})", 0, "tensor \"a\": found a number; expected an object");
    read(R"({"__metadata__":{"x":1}})", 0, "__metadata__: found a number; expected a string");
    read(R"({"__metadata__":[]})", 0, "__metadata__ that is no object");
    std::ofstream(folder / "short") << "1234567";
    refused([&] { un::TensorFile{folder / "short"}; }, "has 7 bytes; expected at least 8");
    refused([&] { un::TensorFile{folder / "none"}; }, "cannot open '" + folder / "none" + "': No such file");
    refused([&] { un::TensorFile{folder.path()}; }, "is not a regular file");
}

BOOST_AUTO_TEST_CASE(manifests) {
    un::detail::Manifest m;
    m.library = "0.1.0";
    m.world = 3;
    m.updates = ~std::uint64_t{0};
    m.epoch = 7, m.samples = 11, m.step_epoch = 13, m.seed = ~std::uint64_t{0} - 1, m.data_size = 45;
    m.order = {"DistributedSampler", 5, true, true};
    m.scales = true, m.loss_scale = 0x1.fffffffffffffp-14, m.good_updates = 2;
    m.grid_exponents = {-2147483647 - 1, 0, 12};
    m.synchronisations = 3, m.own_updates = {~std::uint64_t{0}, 0, 5};
    m.policies = "several\nlines", m.note = "\xc3\xa4\"";
    m.parameters = {{.name = "w", .type = "F32", .shape = {2, 3}}, {.name = "b", .type = "F64", .shape = {}}};
    m.buffers = {{.name = "r", .type = "BF16", .shape = {0}}};
    m.optimizer = "Adam";
    m.arrays = {"exp_avg", "exp_avg_sq"};
    m.files = {{"a.safetensors", 12, 0x0123456789abcdef, {{"w[0:2]", un::detail::StateKind::optimizer, 1, 0, 0, 2}}},
               {"b", 0, 0, {}}};
    const std::string text = un::detail::manifest_text(m);
    BOOST_TEST((un::detail::manifest_of(text, "here") == m));
    // Other parsers read it, too.
    BOOST_TEST(nlohmann::json::parse(text)["files"][0]["xxh64"] == "0123456789abcdef");
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string other = text;
        other[i] = static_cast<char>(other[i] ^ (1 << i % 8));
        refused([&] { un::detail::manifest_of(other, "here"); }, "here: found ");
        refused([&] { un::detail::manifest_of(text.substr(0, i), "here"); }, "here: found ");
    }
    refused([&] { un::detail::manifest_of(text + "\n", "here"); }, "that do not end with a checksum");
    // With a valid seal and wrong contents.
    const auto with = [&](const std::string& from, const std::string& to, const std::string& words) {
        std::string body = text.substr(0, text.rfind(",\n\"xxh64\""));
        const std::size_t at = body.find(from);
        BOOST_TEST_REQUIRE(at != std::string::npos, from);
        body.replace(at, from.size(), to);
        refused([&] { un::detail::manifest_of(un::detail::sealed(body), "here"); }, words);
    };
    with("\"version\":1", "\"version\":2", "found version 2, which is newer; this library reads version 1");
    with("\"version\":1", "\"version\":0", "found version 0; this library reads version 1");
    with("\"version\":1", "\"version\":\"1\"", "here: version: found a string; expected a number");
    with("unisono checkpoint", "something else", "found the format \"something else\"");
    with("\"library\"", "\"librari\"", "found no member \"library\"");
    with("\"world\":3", "\"world\":3,\"x\":1", "found a member \"x\" that is not known");
    with("\"world\":3", "\"world\":0", "expected a world of 1 or more");
    with("\"epoch\":7", "\"epoch\":-7", "found world 3, epoch -7");
    for (const std::string most :
         // The next number overflows.
         {"9223372036854775807", "9223372036854775806", "9007199254740993"}) {
        with("\"epoch\":7", "\"epoch\":" + most, "found epoch " + most);
        with("\"samples\":11", "\"samples\":" + most, "samples " + most);
        with("\"step_epoch\":13", "\"step_epoch\":" + most, "step_epoch " + most);
        with("\"data_size\":45", "\"data_size\":" + most, "expected no number above 9007199254740992");
    }
    with("\"scale\":\"", "\"scale\":\"-", "found the loss scale \"-");
    m.loss_scale = 0; // also refused by a thread that takes the smallest scale as zero
    const std::string none = un::detail::manifest_text(m);
    for (const auto mode : {un::detail::FloatingPointMode::standard, un::detail::FloatingPointMode::flushes_operands}) {
        un::detail::set_floating_point_mode(mode);
        refused([&] { un::detail::manifest_of(none, "here"); }, "found the loss scale \"0\"");
        un::detail::set_floating_point_mode(un::detail::FloatingPointMode::standard);
    }
    with("\"F32\"", "\"F31\"", "\"w\" has an unknown type");
    with("[2,3]", "[4294967296,4294967296]", "impossible shape");
    with("\"name\":\"a.safetensors\"", "\"name\":\"../a\"", "found the file name \"../a\"");
    with("\"name\":\"a.safetensors\"", "\"name\":\"/etc/passwd\"", "found the file name");
    with("\"name\":\"a.safetensors\"", "\"name\":\"manifest.json\"", "found the file name");
    with("0123456789abcdef", "0123456789ABCDEF", "expected 16 digits");
    with("0123456789abcdef", "x", "expected 16 digits");
    with("\"of\":\"optimizer\"", "\"of\":\"gradient\"", "found a tensor of \"gradient\"");
    with("\"first\":0", "\"first\":-1", "found -1; expected an integer");
    with("[-2147483648,", "[-2147483649,", "expected an integer of 32 bits");
}

BOOST_AUTO_TEST_CASE(a_manifest_that_cannot_be_read_replaces_nothing) {
    const Folder folder;
    un::detail::CheckpointFolder checkpoints(folder.path());
    checkpoints.lock();
    const auto write = [&](const std::string& name, std::int64_t samples) {
        checkpoints.make_writing(name);
        un::detail::CheckpointWriting writing(checkpoints, {.samples = samples}, 0, {}, {});
        writing.set_name(name);
        writing.write_own();
        writing.commit(1, std::chrono::seconds(1));
    };
    const std::string good = un::detail::checkpoint_name(1, 0);
    write(good, 8);
    refused([&] { write(un::detail::checkpoint_name(2, 0), -8); }, "samples -8");
    BOOST_TEST(checkpoints.all() == std::vector<std::string>{good});
    BOOST_TEST(checkpoints.is_whole(good));
}

BOOST_AUTO_TEST_CASE(names_of_checkpoints) {
    using un::detail::checkpoint_number;
    BOOST_TEST(un::detail::checkpoint_name(7, 1200) == "checkpoint-000007-update-1200");
    BOOST_TEST(checkpoint_number("checkpoint-000007-update-1200") == 7u);
    BOOST_TEST(checkpoint_number(un::detail::checkpoint_name(12345678, 0)) == 12345678u);
    for (const char* none :
         {"", "checkpoint", "checkpoint-", "checkpoint-000007", "checkpoint-7-update-1200", "checkpoint-000007-update-",
          "checkpoint-000007-update-1200.writing", "checkpoint-000000-update-1", "xcheckpoint-000007-update-1200",
          "checkpoint-000007-update-1200/..", "checkpoint--00007-update-1"})
        BOOST_TEST(checkpoint_number(none) == 0u, none);
}

BOOST_AUTO_TEST_SUITE_END()
