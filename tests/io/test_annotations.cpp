// Label files and document files: their contents, and the error for each way to be invalid.
#include <gtest/gtest.h>

#include <vector>

#include "device/errors.h"
#include "io/document_file.h"
#include "io/label_file.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

class AnnotationFile : public FolderTest {
 protected:
  template <class T>
  std::string write_values(const std::vector<T>& values, size_t bytes_less = 0) {
    const std::string content = bytes_of(values);
    return write("file", content.substr(0, content.size() - bytes_less));
  }
};

class Labels : public AnnotationFile {
 protected:
  template <class E>
  E error_of(const std::vector<int32_t>& labels, uint64_t num_tokens, size_t bytes_less = 0) {
    const std::string path = write_values(labels, bytes_less);
    return test::error_of<E>([&] { LabelFile(path, num_tokens, 10); });
  }
};

TEST_F(Labels, AreReadAndCounted) {
  const std::vector<int32_t> labels = {-100, 0, 9, -100, 5, 3, -100};
  const LabelFile file(write_values(labels), 7, 10);
  EXPECT_EQ(file.num_labels(), 7u);
  EXPECT_EQ(file.num_targets(), 4u);
  EXPECT_EQ(file.num_targets(2, 2), 1u);
  EXPECT_EQ(file.num_targets(7, 0), 0u);
  std::vector<int32_t> part(4);
  file.read(2, part);
  EXPECT_EQ(part, (std::vector{9, -100, 5, 3}));
  EXPECT_THROW(file.read(4, part), LogicError);
}

TEST_F(Labels, HaveAFingerprint) {
  std::vector<int32_t> labels(5000, 3);
  const auto fingerprint = [&] {
    return LabelFile(write_values(labels), labels.size(), 10).fingerprint();
  };
  const uint64_t before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  labels[2500] = -100;
  EXPECT_NE(fingerprint(), before);
  labels[2500] = 3;
  labels.pop_back();
  EXPECT_NE(fingerprint(), before);
}

TEST_F(Labels, LargeFilesAreReadInSeveralParts) {
  std::vector<int32_t> labels((size_t{1} << 20) + 3, 1);
  labels[labels.size() - 2] = -100;
  EXPECT_EQ(LabelFile(write_values(labels), labels.size(), 10).num_targets(), labels.size() - 1);
  labels[labels.size() - 1] = 10;
  const auto error = error_of<FormatError>(labels, labels.size());
  EXPECT_SAYS(error, "label 1048578 is 10: allowed are 0 to 9");
}

TEST_F(Labels, OutsideTheVocabularyAreRejected) {
  for (const int32_t bad : {10, -1, -99, -101, INT32_MAX, INT32_MIN}) {
    const auto error = error_of<FormatError>({1, -100, bad, 4}, 4);
    EXPECT_SAYS(error, "label 2 is " + std::to_string(bad) + ": allowed are 0 to 9");
    EXPECT_SAYS(error, path("file"));
    EXPECT_EQ(error.offset, 8u);
  }
}

TEST_F(Labels, MustBeAsManyAsTokens) {
  for (const uint64_t num_tokens : {3, 5}) {
    const auto error = error_of<ConfigError>({1, 2, 3, 4}, num_tokens);
    EXPECT_SAYS(error, "has 4 labels, the data has " + std::to_string(num_tokens) + " tokens");
    EXPECT_SAYS(error, path("file"));
  }
  EXPECT_SAYS(error_of<ConfigError>({}, 3), "has 0 labels");
}

TEST_F(Labels, AFileThatEndsWithinALabelIsRejected) {
  EXPECT_SAYS(error_of<FormatError>({1, 2, 3, 4}, 4, 1), "the file ends within label 3");
}

TEST_F(Labels, AFileWithoutTargetsIsRejected) {
  EXPECT_SAYS(error_of<ConfigError>({-100, -100}, 2), "all 2 of them are -100");
}

TEST_F(Labels, AMissingFileIsAnError) {
  EXPECT_SAYS(test::error_of<IoError>([&] { LabelFile(path("none"), 2, 10); }), "none");
}

class Documents : public AnnotationFile {
 protected:
  template <class E>
  E error_of(const std::vector<int64_t>& offsets, size_t bytes_less = 0) {
    const std::string path = write_values(offsets, bytes_less);
    return test::error_of<E>([&] { DocumentFile(path, 20); });
  }
  std::vector<int32_t> starts(const std::vector<int64_t>& offsets, uint64_t first, size_t count) {
    std::vector<int32_t> result(count, -1);
    DocumentFile(write_values(offsets), 20).read_starts(first, result);
    return result;
  }
};

TEST_F(Documents, StartsAreCountedFromTheRow) {
  const std::vector<int64_t> offsets = {0, 3, 4, 9};
  EXPECT_EQ(starts(offsets, 0, 10), (std::vector{0, 0, 0, 3, 4, 4, 4, 4, 4, 9}));
  EXPECT_EQ(starts(offsets, 2, 4), (std::vector{0, 1, 2, 2}));
  EXPECT_EQ(starts(offsets, 4, 6), (std::vector{0, 0, 0, 0, 0, 5}));
  EXPECT_EQ(starts(offsets, 10, 10), std::vector(10, 0)) << "the document began before the row";
}

TEST_F(Documents, TokensBeforeTheFirstOffsetAreADocument) {
  EXPECT_EQ(starts({2, 5}, 0, 7), (std::vector{0, 0, 2, 2, 2, 5, 5}));
  EXPECT_EQ(DocumentFile(write_values<int64_t>({2, 5}), 20).num_documents(), 3u);
  EXPECT_EQ(DocumentFile(write_values<int64_t>({0, 5}), 20).num_documents(), 2u);
}

TEST_F(Documents, OffsetsMustIncrease) {
  EXPECT_SAYS(error_of<FormatError>({0, 5, 5, 9}), "offset 2 is 5 and the one before it 5");
  EXPECT_SAYS(error_of<FormatError>({0, 7, 4}), "offset 2 is 4 and the one before it 7");
  EXPECT_SAYS(error_of<FormatError>({0, -3}), "offset 1 is -3 and the one before it 0");
  EXPECT_SAYS(error_of<FormatError>({-1, 3}), "offset 0 is -1");
  EXPECT_SAYS(error_of<FormatError>({0, 7, 4}), path("file"));
}

TEST_F(Documents, OffsetsMustBeWithinTheData) {
  EXPECT_SAYS(error_of<FormatError>({0, 20}), "offset 1 is 20, but the data has 20 tokens");
  EXPECT_EQ(DocumentFile(write_values<int64_t>({0, 19}), 20).num_documents(), 2u);
}

TEST_F(Documents, IncompleteEmptyAndMissingFilesAreRejected) {
  EXPECT_SAYS(error_of<FormatError>({0, 5, 9}, 3), "the file ends within offset 2");
  EXPECT_SAYS(error_of<ConfigError>({}), "is empty");
  EXPECT_SAYS(test::error_of<IoError>([&] { DocumentFile(path("none"), 2); }), "none");
}

}  // namespace
}  // namespace ebb::test
