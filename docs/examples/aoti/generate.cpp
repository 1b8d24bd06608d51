// Continue a prompt greedily with a decoder that `qkv convert RUN exported --to torch-export --aot` compiled.
//
//   generate exported/model.so.pt2 LAYERS HEADS WIDTH COUNT TOKEN...
//
// LAYERS, HEADS and WIDTH are the number of past_key_values pairs in graphs.json, and the sizes of one. Prints the new tokens.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 7) {
    std::cerr << "usage: generate PACKAGE LAYERS HEADS WIDTH COUNT TOKEN...\n";
    return 2;
  }
  c10::InferenceMode inference;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  const int64_t layers = std::atoll(argv[2]), heads = std::atoll(argv[3]), width = std::atoll(argv[4]);
  const int64_t count = std::atoll(argv[5]);
  std::vector<int64_t> prompt;
  for (int i = 6; i < argc; ++i) prompt.push_back(std::atoll(argv[i]));

  auto ids = torch::tensor(prompt).unsqueeze(0);  // (1, T)
  std::vector<torch::Tensor> past(2 * layers, torch::zeros({1, heads, 0, width}));
  int64_t before = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t now = ids.size(1);
    std::vector<torch::Tensor> inputs = {ids, torch::ones({1, before + now}, torch::kLong),
                                         torch::arange(before, before + now).unsqueeze(0)};
    inputs.insert(inputs.end(), past.begin(), past.end());
    auto outputs = model.run(inputs);  // logits, then keys and values of all tokens so far
    ids = outputs[0].select(1, now - 1).argmax(-1, /*keepdim=*/true);
    past.assign(outputs.begin() + 1, outputs.end());
    before += now;
    std::cout << ids.item<int64_t>() << (i + 1 < count ? " " : "\n");
  }
}
