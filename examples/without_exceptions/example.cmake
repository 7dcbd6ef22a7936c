set_source_files_properties(${folder}/main.cpp ${folder}/model.cpp PROPERTIES COMPILE_OPTIONS "-fno-exceptions;-fno-rtti")
