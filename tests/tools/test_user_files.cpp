// Files of the user and of the system stay as they are: outputs never replace inputs, devices or
// links, and a checkpoint of somebody else does not decide which files are written.
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include "device/errors.h"
#include "tests/file_size_limit.h"
#include "tests/tools/checkpoint_runs.h"
#include "tools/checkpoint.h"
#include "tools/saved_run.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

class UserFiles : public CheckpointRuns {
 protected:
  Outcome resume(const Arguments& more = {}) const {
    Arguments arguments = {"train", "--resume", "--save", save()};
    return run(arguments + more);
  }
  /// Changes training.json as a program would that also writes a valid checksum.
  void change_run(int step, const std::function<void(SavedRun&)>& change) const {
    SavedRun saved_run = read_saved_run(saved(step));
    change(saved_run);
    write_saved_run(saved(step), saved_run);
  }
};

TEST_F(UserFiles, OutputsInAFolderThatIsAnInputAreRefused) {
  fs::create_directories(path("data/deep"));
  const std::string input = folder_.write("data/deep/a.txt", content_of(text_));
  succeed(train({"--save", save(), "--steps", "3"}));
  fs::create_symlink("save/step-3", path("link"));
  const auto refused = [&](const Arguments& arguments, const std::string& message) {
    EXPECT_FAILS(run(train(arguments)), 2, message);
  };
  for (const char* flag : {"--log", "--trace"}) {
    for (const char* name : {"data/deep/a.txt", "data/new", "data/../data/deep/b"}) {
      refused({"--data", path("data"), flag, path(name)},
              "in the folder of --data '" + path("data") + "', which is an input");
    }
  }
  refused({"--data", path("data"), "--save", path("data/save")}, "--save '");
  refused({"--eval-data", path("data"), "--log", input}, "in the folder of --eval-data '");
  const Arguments model = {"train",    "--model", path("link"),   "--data", text_,
                           "--device", "host",    "--seq-length", "32"};
  for (const char* name :
       {"link/model.safetensors", "save/step-3/config.json", "link/train.toml"}) {
    EXPECT_FAILS(run(model + Arguments{"--trace", path(name)}), 2, "in the folder of --model '");
  }
  const Arguments eval = {"eval",     "--model", saved(3),       "--data", text_,
                          "--device", "host",    "--seq-length", "32"};
  EXPECT_FAILS(run(eval + Arguments{"--log-probs", saved(3) + "/config.json"}), 2, "--log-probs '");
  succeed(eval + Arguments{"--log-probs", saved(3) + "/x.npy"});
  succeed(eval + Arguments{"--log-probs", saved(3) + "/x.npy"});
  EXPECT_FAILS(resume({"--trace", saved(3) + "/training.json"}), 2, "in the folder of --resume '");
  EXPECT_FAILS(resume({"--log", saved(3) + "/training.json"}), 2, "it is not the log of this run");
  EXPECT_EQ(content_of(input), content_of(text_));
}

TEST_F(UserFiles, TheConfigurationFileIsNotOverwritten) {
  const std::string text = "steps = 1\n", config = folder_.write("c.toml", text);
  for (const Arguments& more : {Arguments{"--trace", config}}) {
    EXPECT_FAILS(run(train({"--config", config}) + more), 2, "would overwrite --config");
  }
  EXPECT_EQ(content_of(config), text);
}

TEST_F(UserFiles, TheRecordOfATokenFileIsNotOverwritten) {
  const std::string data = folder_.write("t.bin", "tokens");
  const std::string record = folder_.write("t.bin.json", "{}");
  EXPECT_FAILS(run(train({"--data", data, "--token-type", "bytes", "--trace", record})), 2,
               "would overwrite the record of the data");
  EXPECT_EQ(content_of(record), "{}");
}

/// A later run would read it as the record.
TEST_F(UserFiles, AnOutputDoesNotBecomeTheRecordOfATokenFile) {
  fs::create_directory(path("linked"));
  const std::string data = folder_.write("t.bin", content_of(text_)), link = path("linked/l.bin");
  fs::create_symlink(data, link);
  for (const std::string& output : {link + ".json", data + ".json"}) {
    EXPECT_FAILS(run(train({"--data", link, "--token-type", "bytes", "--trace", output})), 2,
                 output + "' would be read as the record of the data '" + link + "' by later runs");
    EXPECT_FALSE(fs::exists(output));
  }
  // Only a name that ends in .bin has a record.
  succeed(train({"--steps", "1", "--trace", text_ + ".json"}));
}

TEST_F(UserFiles, AFileThatAFolderLinksToIsNotOverwritten) {
  fs::create_directories(path("data"));
  const std::string real = folder_.write("real.txt", content_of(text_));
  fs::create_symlink(real, path("data/link.txt"));
  EXPECT_FAILS(run(train({"--data", path("data"), "--trace", real})), 2, "--trace '" + real);
  EXPECT_EQ(content_of(real), content_of(text_));
}

TEST_F(UserFiles, AFifoWithoutReaderIsAnErrorAtOnce) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  for (const char* flag : {"--log", "--trace"}) {
    EXPECT_FAILS(run(train({flag, path("fifo")})), 1, "no process reads this FIFO");
  }
  EXPECT_FAILS(run({"eval", "--preset", "toy-bytes", "--data", text_, "--device", "host",
                    "--seq-length", "32", "--log-probs", path("fifo")}),
               1, "no process reads this FIFO");
  EXPECT_FAILS(run(train({"--data", path("fifo")})), 2, "not a regular file");
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
}

TEST_F(UserFiles, LinksAndDevicesAreWrittenThrough) {
  const std::string real = folder_.write("real", "");
  fs::create_symlink("real", path("link"));
  for (const std::string& output : {path("link"), std::string("/dev/null")}) {
    succeed(train({"--steps", "1", "--trace", output, "--log", path("other")}));
  }
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_GT(fs::file_size(real), 0u);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

/// The folder of a later checkpoint is taken. The run must not find that out after its last step.
TEST_F(UserFiles, AFolderInTheWayOfACheckpointIsFoundBeforeTheFirstStep) {
  succeed(train({"--save", save(), "--steps", "3"}));
  for (const char* name : {"step-5", "step-8"}) {
    folder_.write("weights", "x");
    fs::create_directories(save());
    fs::rename(path("weights"), save() + "/" + name);
    const Outcome outcome = resume({"--steps", "8"});
    EXPECT_FAILS(outcome, 2, std::string("'") + name + "' is there and is no complete checkpoint");
    EXPECT_EQ(outcome.err.find("step 4/"), std::string::npos);
    fs::remove(save() + "/" + name);
  }
  fs::create_directories(save() + "/step-2");
  EXPECT_EQ(resume({"--steps", "8"}).exit_code, 0) << "step 2 is not saved any more";
}

TEST_F(UserFiles, ACheckpointOfSomebodyElseDoesNotChooseFilesToWrite) {
  succeed(train({"--save", save(), "--steps", "3"}));
  const std::string mine = folder_.write("mine", "precious\n");
  const std::string other_log = path("other.jsonl");
  succeed(train({"--log", other_log, "--steps", "4"}));
  const std::string other_lines = content_of(other_log);
  for (const std::string& file : {mine, other_log, path("missing"), path("missing/deep")}) {
    const std::string before = content_of(file);
    change_run(3, [&](SavedRun& saved_run) {
      for (FlagValue& flag : saved_run.config) {
        if (flag.name == "log") flag.values = {file};
      }
      std::erase_if(saved_run.config, [](const FlagValue& f) { return f.name == "trace"; });
      saved_run.config.push_back({"trace", {file}});
    });
    succeed({"train", "--resume", saved(3), "--steps", "5", "--save", path("to")});
    const Outcome same = resume({"--steps", "3"});
    EXPECT_EQ(same.exit_code, 0) << same.err;
    EXPECT_SAYS(same.err,
                "the log '" + file + "' is not continued, because no file there has the id");
    EXPECT_SAYS(same.err, "the trace '" + file + "' is not continued");
    EXPECT_EQ(content_of(file), before);
    EXPECT_FALSE(fs::exists(file + ".1"));
    fs::remove_all(path("to"));
  }
  EXPECT_FAILS(resume({"--log", other_log}), 2, "it is not the log of this run");
  EXPECT_EQ(content_of(other_log), other_lines);
}

TEST_F(UserFiles, ALogIsContinuedByItsIdAndOldLogsByTheirSteps) {
  succeed(train({"--save", save(), "--save-steps", "3"}));
  fs::remove_all(saved(8));
  fs::remove_all(saved(6));
  std::string lines = content_of(log_);
  lines = std::regex_replace(lines, std::regex("\"run_id\": \"[0-9a-f]{16}\", "), "");
  std::ofstream(log_) << lines;
  change_run(3, [](SavedRun& saved_run) { saved_run.run_id.clear(); });
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(log(), whole());
}

TEST_F(UserFiles, ALineThatWasNotWrittenIsAddedOnResume) {
  succeed(train({"--save", save(), "--save-steps", "3"}));
  fs::remove_all(saved(8));
  const std::string lines = content_of(log_);
  size_t fifth = 0;
  for (int i = 0; i < 5; ++i) fifth = lines.find('\n', fifth) + 1;
  std::ofstream(log_) << lines.substr(0, fifth + 20);  // the disk was full in the line of step 6
  EXPECT_EQ(resume().exit_code, 0);
  EXPECT_EQ(log(), whole());
}

/// Every digit of training.json decides about the run or is compared.
TEST_F(UserFiles, AChangedDigitOfTrainingJsonIsNoticed) {
  succeed(train({"--save", save(), "--steps", "3"}));
  const std::string file = saved(3) + "/training.json", whole_file = content_of(file);
  int num_changed = 0;
  for (size_t i = 0; i < whole_file.size(); ++i) {
    if (whole_file[i] < '0' || whole_file[i] > '9') continue;
    std::string changed = whole_file;
    changed[i] = changed[i] == '9' ? '8' : static_cast<char>(changed[i] + 1);
    std::ofstream(file) << changed;
    EXPECT_THROW(read_saved_run(saved(3)), FormatError) << "byte " << i;
    ++num_changed;
  }
  EXPECT_GT(num_changed, 60);
  std::string old_file = std::regex_replace(whole_file, std::regex(",\\s*\"xxh64\": \"\\w+\""), "");
  std::ofstream(file) << old_file;
  EXPECT_FAILS(resume(), 2, "the checksum 'xxh64' is missing");
  old_file = std::regex_replace(old_file, std::regex("\"run_id\": \"\\w+\","), "");
  std::ofstream(file) << old_file;
  const Outcome old = resume();
  EXPECT_EQ(old.exit_code, 0) << old.err;
  EXPECT_SAYS(old.err, "training.json has no checksum");
}

TEST_F(UserFiles, AFlagWithoutValueInACheckpointIsRefused) {
  succeed(train({"--save", save(), "--steps", "3"}));
  change_run(3, [](SavedRun& saved_run) { saved_run.config.push_back({"trace", {}}); });
  EXPECT_FAILS(resume(), 2, "config.trace is []; allowed is a setting of a run, with a value");
}

TEST_F(UserFiles, FieldsOfTrainingJsonAreNamedIfTheyAreWrong) {
  succeed(train({"--save", save(), "--steps", "3"}));
  const std::string file = saved(3) + "/training.json";
  nlohmann::json old = nlohmann::json::parse(content_of(file));
  for (const char* name : {"xxh64", "run_id", "files"}) old.erase(name);
  struct Bad {
    const char *name, *value, *message;
  };
  for (const Bad& bad : {Bad{"step", "-1", "step is -1; allowed is a whole number"},
                         {"step", "1.5", "step is 1.5"},
                         {"num_tokens", "true", "num_tokens is true"},
                         {"written_by", "3", "written_by is 3; allowed is a text"},
                         {"config", "[]", "config is []; allowed is an object"},
                         {"config", R"({"lr": 3})", "config.lr is 3; allowed is a list of texts"},
                         {"config", R"({"lr": ["1", 2]})", "config.lr is"},
                         {"config", R"({"data": ["a\u0000b"]})", "config.data is"},
                         {"config", R"({"dry-run": ["true"]})", "config.dry-run is"},
                         {"resolved", "\"lr\"", "resolved is \"lr\""},
                         {"version", "2", "version is 2"}}) {
    nlohmann::json json = old;
    json[bad.name] = nlohmann::json::parse(bad.value);
    std::ofstream(file) << json;
    EXPECT_FAILS(resume(), 2, bad.message);
  }
  for (const char* name : {"step", "data_tokens", "config", "version"}) {
    nlohmann::json json = old;
    json.erase(name);
    std::ofstream(file) << json;
    EXPECT_FAILS(resume(), 2, std::string(name) + " is missing");
  }
}

TEST_F(UserFiles, AChangedConfigOfACheckpointIsNoticed) {
  succeed(train({"--save", save(), "--steps", "3"}));
  for (const char* name : {"/config.json", "/train.toml"}) {
    const std::string file = saved(3) + name, before = content_of(file);
    std::ofstream(file) << before << " ";
    EXPECT_FAILS(resume(), 2, "'" + file + "' at byte 0: it was changed");
    std::ofstream(file) << before;
  }
  EXPECT_EQ(resume().exit_code, 0);
}

TEST_F(UserFiles, ARenamedCheckpointIsNoticed) {
  succeed(train({"--save", save(), "--steps", "3"}));
  fs::rename(saved(3), saved(4));
  EXPECT_FAILS(resume(), 2, "it contains step 3: rename it to step-3");
  fs::rename(saved(4), save() + "/step-003");
  EXPECT_FAILS(run({"train", "--resume", save()}), 2, "a checkpoint (step-N)");
}

TEST_F(UserFiles, NamesOfEbbThatAreNotOfEbbStay) {
  fs::create_directories(save());
  const std::string removed = folder_.write("save/step-3.removed", "precious");
  succeed(train({"--save", save(), "--steps", "1"}));
  EXPECT_EQ(content_of(removed), "precious");
  fs::create_directories(save() + "/step-9.unfinished");
  const std::string mine = folder_.write("save/step-9.unfinished/mine", "precious");
  EXPECT_FAILS(resume({"--steps", "2"}), 2, "has the name of an unfinished checkpoint");
  EXPECT_EQ(content_of(mine), "precious");
}

TEST_F(UserFiles, OutputsReplaceOnlyEarlierOutputs) {
  const std::string notes = folder_.write("notes.txt", "my notes");
  EXPECT_FAILS(run(train({"--trace", notes})), 2, "no earlier output of this kind");
  const Arguments eval = {"eval",     "--preset", "toy-bytes",    "--data", text_,
                          "--device", "host",     "--seq-length", "32"};
  EXPECT_FAILS(run(eval + Arguments{"--logits", notes}), 2, "no earlier output of this kind");
  EXPECT_EQ(content_of(notes), "my notes");
  for (int i = 0; i < 2; ++i) {
    succeed(train({"--steps", "1", "--trace", path("trace.json")}));
    succeed(eval + Arguments{"--logits", path("logits.npy")});
  }
}

TEST_F(UserFiles, TwoSpellingsOfOneNewFileAreOneFile) {
  fs::create_symlink("new", path("link"));
  for (const std::string& other : {path("./new"), path("link"), path("save/../new")}) {
    EXPECT_FAILS(run(train({"--log", path("new"), "--trace", other})), 2, "would overwrite");
  }
  EXPECT_FALSE(fs::exists(path("new")));
  const Outcome outcome = run(train({"--save", save(), "--log", save() + "/step-8"}));
  EXPECT_FAILS(outcome, 2, "would take the name of --save or of a checkpoint");
  EXPECT_FAILS(run(train({"--save", save(), "--trace", save()})), 2, "would take the name");
}

TEST_F(UserFiles, LinksIntoAFolderOfDataAreFollowed) {
  fs::create_directories(path("data"));
  fs::create_directories(path("far"));
  folder_.write("data/a.txt", content_of(text_));
  fs::create_symlink("data/new.txt", path("dangling"));
  fs::create_directory_symlink("../far", path("data/far"));
  for (const char* output : {"dangling", "far/log", "data"}) {
    EXPECT_FAILS(run(train({"--data", path("data"), "--log", path(output)})), 2, "--log '");
  }
  EXPECT_FAILS(run(train({"--data", path("data"), "--save", path("data")})), 2, "--save '");
}

TEST_F(UserFiles, AStateOfAnotherCheckpointIsRefused) {
  succeed(train({"--save", save(), "--save-steps", "3", "--steps", "6"}));
  fs::copy_file(saved(3) + "/state.ebb", saved(6) + "/state.ebb",
                fs::copy_options::overwrite_existing);
  EXPECT_FAILS(resume(), 2, "num_samples is 24 here and 48 in training.json");
}

TEST_F(UserFiles, OtherDataOfTheSameLengthIsReported) {
  succeed(train({"--save", save(), "--steps", "3"}));
  EXPECT_EQ(resume().err.find("other tokens"), std::string::npos);
  std::string text = content_of(text_);
  text[300] = '!';
  std::ofstream(text_) << text;
  fs::remove_all(saved(8));
  EXPECT_SAYS(resume({"--steps", "4"}).err, "resume: the data has other tokens than before");
}

TEST_F(UserFiles, AStateOfAnotherRunIsRefused) {
  succeed(train({"--save", save(), "--steps", "3"}));
  succeed(train({"--save", path("other"), "--steps", "3", "--seed", "9"}));
  fs::copy_file(path("other/step-3/state.ebb"), saved(3) + "/state.ebb",
                fs::copy_options::overwrite_existing);
  EXPECT_FAILS(resume(), 2, "run_id is ");
}

/// Limits the size of files as batch systems do. SIGXFSZ has its default action here.
TEST_F(UserFiles, ALimitOfTheSizeOfFilesIsAnError) {
  const Outcome outcome = [this] {
    const FileSizeLimit limit(8192, SIG_DFL);
    return run(train({"--steps", "1000"}));
  }();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_SAYS(outcome.err, "cannot write log '" + log_ + "': File too large");
}

TEST_F(UserFiles, NamesAreShownWithoutControlCharacters) {
  const std::string name = path("a\x1b[31m\nb\x9b.txt");
  const Outcome outcome = run(train({"--data", name}));
  EXPECT_FAILS(outcome, 2, "a\\x1b[31m\\nb\\x9b.txt': No such file");
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
}

/// A limit of addresses (ulimit -v) is reported as what it is.
TEST_F(UserFiles, ALimitOfAddressesIsNamed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer reserves more addresses than this limit";
#endif
  rlimit before = {};
  ::getrlimit(RLIMIT_AS, &before);
  const rlimit limit = {size_t{300} << 20, before.rlim_max};
  const Arguments arguments = train({"--preset", "gpt2-bytes", "--steps", "1"});
  ::setrlimit(RLIMIT_AS, &limit);
  const Outcome outcome = run(arguments);
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_SAYS(outcome.err, "ulimit -v");
}

}  // namespace
}  // namespace ebb::test
