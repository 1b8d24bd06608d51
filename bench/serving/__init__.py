"""`python -m bench serving`: decoding beside llama.cpp, CTranslate2, ONNX Runtime and OpenVINO."""
