// The names of the experiment's messages, for headers that only pass them on. experiment.pb.h, which
// defines them, is for the sources that look into one: it takes longer to compile than all else that a
// header includes.
#pragma once

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace troupe::proto {

enum Activation : int;

class Bpe;
class Cifar;
class Clock;
class Codec;
class Codecs;
class Custom;
class CustomScheme;
class Dana;
class Data;
class DcAsgd;
class Decoupled;
class Diloco;
class DualAveraging;
class Experiment;
class Extension;
class Fasgd;
class Faults;
class GapAware;
class Glyphs;
class Gpt;
class Idx;
class Lenet5;
class Llama;
class Lstm;
class Model;
class Optimizer;
class Pipeline;
class Placement;
class Quadratic;
class QuorumDiloco;
class Record;
class Replicas;
class Resnet;
class Resumed;
class Softsync;
class Sparse;
class Stop;
class Teacher;
class Text;
class TimeModel;
class Vgg;
class Vocabulary;
class Wsp;

}  // namespace troupe::proto
