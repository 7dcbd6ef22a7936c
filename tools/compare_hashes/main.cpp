// unisono-compare-hashes FIRST SECOND: at which update do two runs diverge? Exit status 0: nowhere.
// 1: the runs diverge. 2: a log cannot be read, or neither log has an update.
#include <unisono/observe/hash_log.hpp>

#include <cstdio>
#include <string>

namespace {

bool read(const char* path, std::string& text) {
    std::FILE* const file = std::fopen(path, "rb");
    if (file == nullptr) return false;
    char block[65536];
    for (std::size_t n = 0; (n = std::fread(block, 1, sizeof block, file)) != 0;) text.append(block, n);
    const bool good = std::ferror(file) == 0;
    std::fclose(file);
    return good;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FIRST SECOND\n", argv[0]);
        return 2;
    }
    std::string logs[2];
    for (int i = 0; i < 2; ++i) {
        if (read(argv[i + 1], logs[i])) continue;
        std::fprintf(stderr, "%s: cannot read '%s'\n", argv[0], argv[i + 1]);
        return 2;
    }
    const unisono::LogComparison found = unisono::compare_hash_logs(logs[0], logs[1]);
    if (found.empty) {
        std::fprintf(stderr, "%s: neither '%s' nor '%s' has an update; expected logs of HashLog\n", argv[0], argv[1],
                     argv[2]);
        return 2;
    }
    if (found.equal) std::printf("equal: %llu updates\n", static_cast<unsigned long long>(found.compared));
    else
        std::printf("%llu equal updates, then: %s\n", static_cast<unsigned long long>(found.compared),
                    found.what.c_str());
    return found.equal ? 0 : 1;
}
